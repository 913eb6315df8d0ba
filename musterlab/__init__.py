"""A real Kubernetes control plane on one machine, with simulated DGX nodes, or real ones.

etcd, kube-apiserver and kube-controller-manager are the real programs; kwok plays the kubelets of simulated nodes, and
`realnodes` runs containers. Nobody schedules: a pod runs once something binds it. On a simulated node it does so until
it is deleted; annotations of a pod ask for more:

- `muster.dev/lab-run-seconds: "30"`: it ends by itself after so many seconds;
- `muster.dev/lab-stop-seconds: "20"`: once it is deleted, it goes on for so many seconds, as if it saved its work;
- `muster.dev/lab-exit-code: "1"`: with this exit code (default 0); if it is not 0, the pod has Failed.
"""
