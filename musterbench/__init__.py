"""How fast muster decides, and how fast it carries its decisions out: `muster bench`."""
