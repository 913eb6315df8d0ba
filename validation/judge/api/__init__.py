"""Verdicts on answers of the API server and on containers."""
