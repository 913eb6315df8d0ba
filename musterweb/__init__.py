"""Pages of the cluster for browsers: what the command line shows, live, with each person's own rights."""
