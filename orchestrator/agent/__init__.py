"""The agent of a node with GPUs: it watches the GPUs through NVML, and reads from the kubelet which pods have them."""
