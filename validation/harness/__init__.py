"""The pytest plugin, and pytest started by `muster validate`."""
