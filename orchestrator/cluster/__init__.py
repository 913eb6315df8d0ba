"""The Kubernetes boundary: everything above it speaks domain types."""
