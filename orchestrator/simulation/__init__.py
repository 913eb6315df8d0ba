"""What would happen: the planner on a snapshot from a file or a cluster, decision after decision."""
