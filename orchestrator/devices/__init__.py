"""Allocation of the devices of a node to ResourceClaims (DRA): pure, and independent of the planner."""
