"""The plan of a run: its checks, and the requirements that they prove."""
