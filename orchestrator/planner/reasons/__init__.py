"""Reasons of pending workloads: their choice (`explainer`), their sentences, and proven remedies."""
