"""The conversion of Kubernetes objects to the planner's snapshot."""
