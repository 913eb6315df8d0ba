"""Events, conditions, metrics and records with the results of decisions."""
