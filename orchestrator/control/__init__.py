"""The loops that join the planner to the cluster."""
