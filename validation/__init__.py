"""Replays scenarios against a cluster, judges the events, and writes a report that others can check."""
