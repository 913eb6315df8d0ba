"""The requests to the API server that carry out a decision: bindings, evictions, PVCs, ResourceClaims, reservations."""
