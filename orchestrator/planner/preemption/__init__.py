"""Preemption: the rules of reclaim, the search for victims, and nominations."""
