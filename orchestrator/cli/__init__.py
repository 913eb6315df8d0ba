"""The researcher's and administrator's commands."""
