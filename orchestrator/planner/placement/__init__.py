"""Where pods can go: predicates, devices, topology, reservations."""
