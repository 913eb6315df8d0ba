"""The readers of the recorder.

They read the cluster with the `kubernetes` package and share no code with `orchestrator`.

An observer that shares the observed program's code shares its mistakes.
"""
