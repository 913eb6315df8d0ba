"""One decision: its actions, from the least to the most disruptive."""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.planner.actions.allocate import allocate
from orchestrator.planner.actions.consolidate import consolidate
from orchestrator.planner.actions.preempt import preempt
from orchestrator.planner.actions.reclaim import reclaim
from orchestrator.planner.actions.stale import evict_stale
from orchestrator.planner.decision import Decision
from orchestrator.planner.model import Plan, Snapshot

ACTIONS: Mapping[str, Callable[[Decision], None]] = {
    "allocate": allocate,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "stale": evict_stale,
}


def plan(snapshot: Snapshot, actions: Iterable[str] = tuple(ACTIONS)) -> Plan:
    """Who is bound where, who is evicted for whom, and why the rest waits. Same input, same plan.

    `actions` restricts the decision to some of its steps, in the order of `ACTIONS`.
    """
    chosen = frozenset(actions)
    decision = Decision(snapshot)
    for name, act in ACTIONS.items():
        if name in chosen:
            act(decision)
    return decision.plan()
