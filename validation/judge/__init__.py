"""Pure verdicts: recorded events and expectations in, verdicts out."""
