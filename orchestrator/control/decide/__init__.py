"""The scheduling loop: from changes in the cluster to the next decision."""
