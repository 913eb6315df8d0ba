"""Shares the GPUs of a Kubernetes cluster between teams: the scheduler, its control loops and the command line."""
