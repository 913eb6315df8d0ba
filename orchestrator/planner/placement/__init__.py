"""Placement of pods: nodes, devices, topology, reservations."""
