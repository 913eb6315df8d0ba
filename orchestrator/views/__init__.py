"""The tables and details that people are shown of jobs, nodes and GPUs. Pure."""
