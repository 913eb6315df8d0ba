"""A run: the steps of each scenario, its checks and its result."""
