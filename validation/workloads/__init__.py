"""Programs that an acceptance test runs inside containers, and their results for the judge."""
