"""One decision: its actions, from the least to the most disruptive."""

from orchestrator.planner.actions.allocate import allocate
from orchestrator.planner.actions.reclaim import reclaim
from orchestrator.planner.decision import Decision
from orchestrator.planner.model import Plan, Snapshot


def plan(snapshot: Snapshot) -> Plan:
    """Who is bound where, who is evicted for whom, and why the rest waits. Same input, same plan."""
    decision = Decision(snapshot)
    allocate(decision)
    reclaim(decision)
    return decision.plan()
