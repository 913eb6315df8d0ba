"""Measurements of muster on this machine: `python -m musterbench`."""
