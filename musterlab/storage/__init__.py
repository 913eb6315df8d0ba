"""Storage that clones and takes snapshots, for the real nodes of a lab: Kubernetes' own CSI driver for tests."""
