"""Plans on a snapshot and applies the plan, again and again, until a decision changes nothing.

`apply_plan` defines the effect of a plan. No workload ends by itself.
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
    """A simulated run from the snapshot `before` to the snapshot `after`.

    `steps` are the plans that were applied. `last` is the latest plan.

    `snapshots` has the input of each step. If `is_stable` is set, `last` was planned on `after` and changed nothing.
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
    max_decisions: int = MAX_DECISIONS,
    planner: Planner = plan,
    grace_decisions: int = 0,
    late_successors: bool = False,
) -> Run:
    """Plan and apply until a plan changes nothing and no pod is terminating, at most `max_decisions` times.

    Terminating pods use their devices for `grace_decisions` decisions. Their successors are pending immediately or,
    with `late_successors`, after the end of their predecessors.
    """
    cluster = Departures(snapshot, lambda _: grace_decisions, lambda _: late_successors)
    steps: list[Plan] = []
    snapshots: list[Snapshot] = []
    for _ in range(max_decisions):
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
    """Plan once and apply the plan. The successors of evicted pods are pending immediately."""
    decision = planner(snapshot)
    after = after_decision(snapshot, decision)
    if after is snapshot:
        return Run(snapshot, snapshot, (), decision, is_stable=True)
    return Run(snapshot, after, (decision,), decision, is_stable=False, snapshots=(snapshot,))
