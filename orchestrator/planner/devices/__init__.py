"""Dynamic resource allocation: which devices a claim gets on a node. Pure, like all of the planner."""
