"""Verdicts on the hosts below Kubernetes."""
