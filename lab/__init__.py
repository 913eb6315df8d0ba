"""A real Kubernetes control plane on one machine, with simulated DGX nodes.

etcd, kube-apiserver and kube-controller-manager are the real programs; kwok plays the kubelets. Nobody schedules:
a pod runs once something binds it, and then until it is deleted. Annotations of a pod ask for more:

- `muster.dev/lab-run-seconds: "30"`: it ends by itself after so many seconds;
- `muster.dev/lab-exit-code: "1"`: with this exit code (default 0); if it is not 0, the pod has Failed.
"""
