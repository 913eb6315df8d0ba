"""Runs on every node with GPUs: watches them by NVML, and reports their pods by the kubelet."""
