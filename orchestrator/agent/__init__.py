"""What runs on every node with GPUs: it watches them by NVML, and says whose they are by the kubelet."""
