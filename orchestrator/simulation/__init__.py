"""Simulations: the planner runs on a snapshot from a file or a cluster, decision after decision."""
