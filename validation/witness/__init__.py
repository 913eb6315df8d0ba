"""The readers of the recorder.

They read the cluster with the `kubernetes` package and share no code with `orchestrator`.

An observer that shares code with the observed program would have the same defects.
"""
