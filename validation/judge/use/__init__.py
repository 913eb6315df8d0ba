"""Verdicts on the utilization of GPUs."""
