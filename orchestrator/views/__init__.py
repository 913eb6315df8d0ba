"""The content of tables and details about jobs, nodes and GPUs, for the commands and the pages. Pure."""
