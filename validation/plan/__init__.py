"""The checks of a run before it starts, and the acceptance that they are for."""
