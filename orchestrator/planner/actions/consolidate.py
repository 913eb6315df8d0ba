"""Migrate running pods so that a larger request fits. Every migrated pod has a new placement."""

from collections.abc import Iterable

from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.evicting import (
    Hopeless,
    carry_out,
    may_evict_now,
    nominate_victims,
    waiting_for,
)
from orchestrator.planner.gangs import chunk_amounts, chunk_gpu_milli
from orchestrator.planner.model import CAPACITY_REASONS, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.repacking import repack_for
from orchestrator.planner.preemption.rescheduling import MovePolicy
from orchestrator.planner.preemption.search import preempt_for
from orchestrator.planner.preemption.victim_selection import MAX_NODES, VictimSelector
from orchestrator.planner.session import Session

_MAX_FAILURES = 16
_WORK_PERCENT = 5


def consolidate(session: Session) -> None:
    """Migrate pods for workloads that are within neither quota nor fair share, in priority order."""
    waiting = can_consolidate_for(session, EntitlementTier.OVER_SHARE)
    if not waiting:
        return
    session.work.allow(_WORK_PERCENT)
    consolidation = Consolidation(session)
    for queue in session.queues_left_over_first(waiting):
        while not consolidation.is_hopeless and (workload := session.next_workload(queue)) is not None:
            served = consolidation.move_for(workload)
            queue.settle(workload.project, workload if served and session.next_chunk(workload) else None)


def can_consolidate_for(session: Session, level: EntitlementTier) -> list[Workload]:
    """Return the pending workloads of this tier. The list is empty if each of them requests more GPUs than are free on
    all nodes together.
    """
    if session.snapshot.settings.max_consolidation_victims == 0:
        return []
    waiting = [
        workload
        for workload in may_evict_now(session, _served(waiting_for(session, CAPACITY_REASONS)))
        if session.tier(workload, session.next_chunk(workload)) is level
    ]
    if not waiting:
        return []
    free = free_milli(session)
    return waiting if any(chunk_gpu_milli(session.next_chunk(one)) <= free for one in waiting) else []


class Consolidation:
    """Migrations for workloads, one workload at a time.

    A failed search is expensive. After 16 failed searches, it searches no more in this decision.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        policy = MovePolicy(session.snapshot.settings.max_consolidation_victims)
        self._selector = VictimSelector(session, session.once(Candidates), policy, max_nodes=MAX_NODES)
        self._hopeless = Hopeless()

    @property
    def is_hopeless(self) -> bool:
        """Whether too many searches have failed, so that no more are made."""
        return self._hopeless.count >= _MAX_FAILURES

    def move_for(self, workload: Workload) -> bool:
        """Migrate pods so that the next chunk of the workload fits. If that is impossible, change nothing."""
        return not self.is_hopeless and consolidate_for(
            self._session, workload, self._selector, self._hopeless
        )


def _served(waiting: Iterable[Workload]) -> list[Workload]:
    """Return the preemptible workloads, and the workloads ahead of one of them in the queue of their project.

    Otherwise a workload ahead of a preemptible workload would take the GPUs that migrations make free for it.

    Example: a non-preemptible job of priority 2 is ahead of a preemptible job of priority 1. Both are returned.
    """
    candidates = list(waiting)
    last: dict[str, tuple[int, int, str, str]] = {}
    for candidate in candidates:
        if candidate.preemptible:
            last[candidate.project] = max(
                workload_order(candidate), last.get(candidate.project, workload_order(candidate))
            )
    return [
        candidate
        for candidate in candidates
        if candidate.preemptible
        or (candidate.project in last and workload_order(candidate) < last[candidate.project])
    ]


def consolidate_for(
    session: Session, workload: Workload, selector: VictimSelector, hopeless: Hopeless
) -> bool:
    """Migrate pods so that the next chunk fits, and nominate them. If that is impossible, change nothing."""
    chunk = session.next_chunk(workload)
    requested = chunk_amounts(chunk)
    if not requested[0] or hopeless.includes(session, workload, chunk, ()):
        return False
    if session.violation(workload, chunk) is not None:
        return False
    free = free_milli(session)
    policy = MovePolicy(session.snapshot.settings.max_consolidation_victims)
    outcome = None
    # Migrations free no GPUs: if all free GPUs together are too few, no search can succeed.
    if free >= requested[0]:
        outcome = preempt_for(session, workload, chunk, selector.under(policy)) or repack_for(
            session, workload, chunk, selector.under(policy)
        )
    if outcome is None:
        hopeless.add(session, workload, chunk, ())
        return False
    carry_out(session, workload, *outcome)
    nominate_victims(session, workload, outcome[0], policy.moved)
    return True


def free_milli(session: Session) -> int:
    """Return the GPUs that are free on all nodes after all terminating pods have ended, in thousandths."""
    return sum([account.later_milli for account in session.ledger.nodes if account.node.schedulable])
