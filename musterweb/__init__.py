"""Live pages of the cluster for browsers, with the content of the command line and each person's own rights."""
