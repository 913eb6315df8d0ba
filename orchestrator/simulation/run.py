"""The smallest cluster that obeys plans, decision by decision, until it is at rest.

`apply_plan` says what obeying is. Nothing ends by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.planner import plan
from orchestrator.planner.model import Plan, Snapshot
from orchestrator.simulation.apply_plan import Departures, after_decision

MAX_DECISIONS: Final = 100

Planner = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a snapshot. `steps` are the decisions before the last, `last` is the latest of all.

    `snapshots` are what each of the steps was decided on. `is_stable` says that `last` changed nothing: it then speaks
    about `after`.
    """

    before: Snapshot
    after: Snapshot
    steps: tuple[Plan, ...]
    last: Plan
    is_stable: bool
    snapshots: tuple[Snapshot, ...] = ()


def settle(
    snapshot: Snapshot,
    *,
    most_decisions: int = MAX_DECISIONS,
    planner: Planner = plan,
    grace_decisions: int = 0,
    late_successors: bool = False,
) -> Run:
    """Decide and obey until a decision changes nothing and no pod is on its way out, `most_decisions` times at most.

    Pods that are evicted, or on their way out at the beginning, hold their devices for `grace_decisions` decisions.
    The pods that come instead wait at once, or, with `late_successors`, when their predecessors are gone.
    """
    cluster = Departures(snapshot, lambda _: grace_decisions, lambda _: late_successors)
    steps: list[Plan] = []
    snapshots: list[Snapshot] = []
    for _ in range(most_decisions):
        current = cluster.snapshot
        decision = planner(current)
        if not cluster.carry_out(decision) and cluster.is_quiet:
            return Run(snapshot, current, tuple(steps), decision, is_stable=True, snapshots=tuple(snapshots))
        steps.append(decision)
        snapshots.append(current)
    return Run(
        snapshot, cluster.snapshot, tuple(steps), steps[-1], is_stable=False, snapshots=tuple(snapshots)
    )


def decide_once(snapshot: Snapshot, *, planner: Planner = plan) -> Run:
    """One decision on the snapshot as it is, and what it changes: who is evicted waits again at once."""
    decision = planner(snapshot)
    after = after_decision(snapshot, decision)
    if after is snapshot:
        return Run(snapshot, snapshot, (), decision, is_stable=True)
    return Run(snapshot, after, (decision,), decision, is_stable=False, snapshots=(snapshot,))
