"""Converts a user's request to the manifests of the created objects. Pure."""
