"""Replays scenarios against a cluster, judges what happened, and writes a report that others can check."""
