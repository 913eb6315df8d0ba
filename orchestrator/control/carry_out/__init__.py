"""A decision to requests at the API server: binds, evictions, claims, reservations."""
