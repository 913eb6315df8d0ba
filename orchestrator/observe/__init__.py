"""Kubernetes objects to the planner's snapshot."""
