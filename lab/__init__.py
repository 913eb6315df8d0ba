"""A real Kubernetes control plane on one machine, with simulated DGX nodes."""
