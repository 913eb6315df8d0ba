"""The loop: changes in the cluster to the next decision."""
