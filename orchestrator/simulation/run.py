"""The smallest cluster that obeys a plan: what the planner decides happens at once, until it decides nothing more.

`planner.aftermath` says what obeying is. Nothing ends by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.planner import plan
from orchestrator.planner.aftermath import obey, without_releasing
from orchestrator.planner.model import Plan, Snapshot

MOST_DECISIONS: Final = 100

Planner = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a snapshot. `steps` are the decisions that changed something; `last` is the latest of all.

    `is_stable` says that `last` changed nothing: it then speaks about `after`.
    """

    before: Snapshot
    after: Snapshot
    steps: tuple[Plan, ...]
    last: Plan
    is_stable: bool


def settle(snapshot: Snapshot, *, most_decisions: int = MOST_DECISIONS, planner: Planner = plan) -> Run:
    """Decide and obey until a decision changes nothing, or `most_decisions` have been made.

    Pods that are on their way out are taken to be gone first.
    """
    current = without_releasing(snapshot)
    steps: list[Plan] = []
    for _ in range(most_decisions):
        decision = planner(current)
        if not decision.bindings and not decision.evictions:
            return Run(snapshot, current, tuple(steps), decision, is_stable=True)
        steps.append(decision)
        current = obey(current, decision)
    return Run(snapshot, current, tuple(steps), steps[-1], is_stable=False)


def decide_once(snapshot: Snapshot, *, planner: Planner = plan) -> Run:
    """One decision on the snapshot as it is, and what it changes."""
    decision = planner(snapshot)
    changes = bool(decision.bindings or decision.evictions)
    after = obey(snapshot, decision) if changes else snapshot
    return Run(snapshot, after, (decision,) if changes else (), decision, is_stable=not changes)
