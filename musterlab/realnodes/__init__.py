"""Real nodes: a kubelet and a containerd each, whose containers truly run, on this machine.

Each node is a process of the lab in its own mount, process, host name, IPC and cgroup namespaces. All nodes of a lab
share one network namespace, which `network` makes.

So nothing must be undone on the machine. When the process of a node ends, the kernel ends all processes of the node,
and removes mounts, interfaces and network namespaces. Only its cgroup folders stay, and they are removed with the
lab.

network   the network of the nodes, the way to the API server and back, and a registry of the lab's images
machine   one node: its root file system, containerd, kubelet
plan      the files and certificates that both read
images    the images: a shell, and stand-ins for those that the paper names
register  the writes through the API: rights, labels, GPUs
"""
