"""Real nodes: a kubelet and a containerd each, whose containers truly run, on this machine.

Each node is a process of the lab in its own mount, process, host name, IPC and cgroup namespaces. All nodes of a lab
share one network namespace, which `network` makes.

So the machine needs no cleanup. When the process of a node ends, the kernel ends all processes of the node, and removes
its mounts, interfaces and network namespace. Only its cgroup folders remain until the lab is removed.

network   the network of the nodes, the way to the API server and back, and a registry of the lab's images
machine   one node: its root file system, containerd, kubelet
plan      the files and certificates for network and machine
images    the images: a shell, and substitutes for the images in TR-4858
register  the writes through the API: rights, labels, GPUs
"""
