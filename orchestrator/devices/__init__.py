"""Allocation of a node's devices to ResourceClaims (DRA; "claims" here): pure, and independent of the planner."""
