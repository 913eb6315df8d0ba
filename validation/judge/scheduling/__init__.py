"""Verdicts on allocations: the oracle, expectations and invariants."""
