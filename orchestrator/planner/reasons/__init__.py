"""Why work waits: what the checks found as data with its words (texts), and who is told what (explainer)."""
