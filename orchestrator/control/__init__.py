"""The loops of the operator, which connect the planner to the cluster."""
