"""Reasons of pending workloads: the findings as data with their words (texts), and their choice (explainer)."""
