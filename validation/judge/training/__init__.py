"""Verdicts on training jobs and their rates."""
