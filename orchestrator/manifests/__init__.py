"""Templates of the manifests for the cluster: CRD, RBAC, PriorityClasses, Deployment."""
