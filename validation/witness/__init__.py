"""The recorder's own eyes: it reads the cluster with the `kubernetes` package and shares nothing with `orchestrator`.

An observer that shares the observed program's code shares its mistakes.
"""
