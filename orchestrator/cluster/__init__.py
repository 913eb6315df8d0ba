"""The access to the Kubernetes API, with typed objects for the packages above it."""
