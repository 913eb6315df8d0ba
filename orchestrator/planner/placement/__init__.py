"""Where pods can go: nodes, devices, topology, reservations."""
