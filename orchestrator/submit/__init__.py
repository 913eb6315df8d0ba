"""A user's request to the manifests that are created. Pure."""
