"""Which nodes admit a pod, and what sets of nodes have in total, whatever runs there."""
