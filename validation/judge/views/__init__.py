"""Verdicts on lists and pages of the orchestrator."""
