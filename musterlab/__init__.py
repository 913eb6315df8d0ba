"""A real Kubernetes control plane on one machine, with simulated DGX nodes, or real ones.

etcd, kube-apiserver and kube-controller-manager are the real programs; kwok acts as the kubelets of simulated nodes,
and `realnodes` runs containers. There is no scheduler: a pod runs after another program binds it. On a simulated node
it runs until it is deleted, unless annotations of the pod change that:

- `muster.dev/lab-run-seconds: "30"`: it ends by itself after these seconds;
- `muster.dev/lab-stop-seconds: "20"`: after its deletion it runs for these seconds, as if it saved its state;
- `muster.dev/lab-exit-code: "1"`: it ends with this exit code (default 0). Any other than 0 sets the phase Failed.
"""
