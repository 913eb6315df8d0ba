"""Templates of what the cluster needs: CRD, RBAC, PriorityClasses, Deployment."""
