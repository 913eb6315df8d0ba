"""The steps of a decision, from the least to the most disruptive."""
