"""Programs that an acceptance test runs inside containers, and what they leave for the judge."""
