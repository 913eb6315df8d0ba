"""Events, conditions, metrics and records about decisions."""
