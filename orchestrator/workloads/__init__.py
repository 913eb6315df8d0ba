"""What a workload is: from Kubernetes objects to the domain and back."""
