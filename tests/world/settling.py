"""A frozen world: no pod ends by itself and none is submitted. Each decision is checked until one changes nothing."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from orchestrator.planner import Planner, plan
from orchestrator.planner.model import PodState
from orchestrator.simulation.apply_plan import Departures
from tests.world.facts import all_pods, order_in_project
from tests.world.failing import FailingCluster, has_failed
from tests.world.pod_constraints import releasing
from tests.world.rest_checks import check_rest
from tests.world.step import Step, Violation
from tests.world.step_checks import check_step, difference, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.planner.model import Plan, Pod, Snapshot

MAX_ACTIVE_DECISIONS = 20
"""Maximum number of decisions that bind, evict or migrate pods until a frozen world is at rest."""


@dataclass(frozen=True)
class Pace:
    """Maximum number of decisions for which evicted pods terminate, and whether their successors appear only
    afterwards.

    With `is_mixed`, the name of each pod determines both. With `is_failing`, pods fail to start as
    `tests.world.failing` says.
    """

    grace_decisions: int = 0
    is_late: bool = False
    is_mixed: bool = False
    is_failing: bool = False

    def cluster(self, snapshot: Snapshot) -> Departures:
        """Return a cluster that starts with the snapshot."""
        kind = FailingCluster if self.is_failing else Departures
        return kind(snapshot, self.grace, self.late)

    def grace(self, pod: Pod) -> int:
        if not self.is_mixed:
            return self.grace_decisions
        return crc32(pod.name.encode()) % (self.grace_decisions + 1)

    def late(self, pod: Pod) -> bool:
        return bool(crc32(pod.name.encode()) // 7 % 2) if self.is_mixed else self.is_late

    def __str__(self) -> str:
        failing = ", failures by name" * self.is_failing
        if self.is_mixed:
            return (
                f"grace periods of 0 to {self.grace_decisions} decisions, successors at once or late{failing}"
            )
        return f"--grace-decisions {self.grace_decisions}{', late successors' * self.is_late}{failing}"


def decide(
    snapshot: Snapshot,
    planner: Planner | None = None,
    seed: int = 0,
    *,
    decider: Callable[[Snapshot], Plan] = plan,
) -> tuple[Plan | None, list[Violation]]:
    """Return the plan for the snapshot and its violations; the plan is None if the planner raised.

    `planner` has decided on the snapshots before. A second plan is made for the snapshot in an order that `seed`
    chooses, and must be equal. With 0, no second plan is made.
    """
    try:
        decision = decider(snapshot)
        violations = check_step(snapshot, decision)
        if seed and (parts := difference(decision, decider(shuffled(snapshot, seed)))):
            violations.append(Violation("order", f"another order of the input gives other {parts}"))
        if planner is not None and (parts := difference(decision, planner.plan(snapshot))):
            violations.append(Violation("kept-books", f"a planner that knows the past decides other {parts}"))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        facts = f"{type(error).__name__}: {error} ({last.name}, line {last.lineno})"
        return None, [Violation("crash", facts)]
    return decision, violations


@dataclass
class Settled:
    """The outcome of a frozen world."""

    violations: dict[str, tuple[Violation, Snapshot]]
    """By check, the first violation and its snapshot."""
    after: Snapshot
    decisions: int
    evictions: int


def settle(
    snapshot: Snapshot, pace: Pace, seed: int = 0, *, decider: Callable[[Snapshot], Plan] = plan
) -> Settled:
    """Decide until nothing changes, and check each decision and the world at rest.

    The first violation of each check is kept, with its snapshot.
    """
    cluster = pace.cluster(snapshot)
    planner = Planner() if decider is plan else None
    history = History()
    first: dict[str, tuple[Violation, Snapshot]] = {}

    def record(violations: Iterable[Violation], seen_on: Snapshot) -> None:
        for violation in violations:
            first.setdefault(violation.check, (violation, seen_on))

    active = evictions = 0
    capped = snapshot.settings.max_evictions is not None
    patience = MAX_ACTIVE_DECISIONS + (sum(1 for _ in all_pods(snapshot)) if capped else 0)
    for decisions in range(1, 1000):
        current = cluster.snapshot
        decision, violations = decide(current, planner, seed and seed + decisions, decider=decider)
        if decision is not None:
            violations += history.note(current, decision)
        record(violations, current)
        if decision is None:
            return Settled(first, current, decisions, evictions)
        active += bool(decision.bindings or decision.evictions)
        evictions += len(decision.evictions)
        if active > patience or decisions > 20 * patience:
            facts = f"{decisions} decisions, {active} of them changed something; {history.summary()}"
            record([Violation("loop", facts)], snapshot)
            return Settled(first, current, decisions, evictions)
        if not cluster.carry_out(decision) and cluster.is_quiet:
            record([*check_rest(current), *history.ineffective(current)], current)
            return Settled(first, current, decisions, evictions)
    raise AssertionError("not reached: `patience` ends it")


class History:
    """The evictions since the world was frozen with their beneficiaries, and the workloads that were bound."""

    def __init__(self) -> None:
        self._evicted: Counter[tuple[str, str, str]] = Counter()
        self._waiting: dict[str, str] = {}
        self._bound: set[str] = set()
        self._steps: dict[str, Step] = {}

    def note(self, before: Snapshot, decision: Plan) -> Iterator[Violation]:
        """Record a decision. Yields each repeated eviction of a pod for the same beneficiary, if the beneficiary has
        not started in between.
        """
        return iter(list(self._note(Step(before, decision))))

    def _note(self, step: Step) -> Iterator[Violation]:
        # A nominated pod is bound before other pods are evicted: an elastic workload then has the pod of the
        # last eviction, and the next eviction is for its next pod.
        for binding in step.plan.bindings:
            if step.pods[binding.pod].nominated_node is not None:
                self._waiting.pop(binding.workload, None)
        waited = frozenset(self._waiting)
        for eviction in step.plan.evictions:
            if eviction.beneficiary == eviction.workload:
                continue
            case = (eviction.workload, step.pods[eviction.pod].name, eviction.beneficiary)
            self._evicted[case] += 1
            if self._evicted[case] > 1 and eviction.beneficiary in waited:
                yield Violation("evicted-twice", f"{case[1]} of {case[0]} for {case[2]} ({eviction.rule})")
            self._waiting[eviction.beneficiary] = eviction.rule
            self._steps[eviction.beneficiary] = step
        for binding in step.plan.bindings:
            self._bound.add(binding.workload)
            self._waiting.pop(binding.workload, None)

    def ineffective(self, at_rest: Snapshot) -> Iterator[Violation]:
        """Yield beneficiaries of evictions that stayed pending, although no more entitled workload was bound.

        If a pod does not end, the planner learns that too late, so nothing is checked.
        """
        if releasing(at_rest, only_stuck=True):
            return
        workloads = {workload.id: workload for workload in at_rest.workloads}
        for name, rule in self._waiting.items():
            loser = workloads[name]
            if not any(pod.state is PodState.PENDING for pod in loser.pods) or has_failed(at_rest, loser):
                continue
            step = self._steps[name]
            requested = step.chunk_bound_or_nominated(name)
            tier = step.tier(loser, step.held_before, requested)
            better = [
                other
                for other in (workloads[bound] for bound in self._bound if bound in workloads)
                if (
                    order_in_project(other) < order_in_project(loser)
                    if other.project == loser.project
                    else step.tier(other, step.held_before, (0, 0, 0)) <= tier
                )
            ]
            if not better:
                yield Violation("ineffective-eviction", f"evicted for {name} ({rule}), which waits still")

    def summary(self) -> str:
        """Return the evictions that were repeated most."""
        return ", ".join(
            f"{pod} for {winner} {count} times" for (_, pod, winner), count in self._evicted.most_common(3)
        )
