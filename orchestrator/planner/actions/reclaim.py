"""Take borrowed GPUs back for projects that hold less than they may, once the whole placement is shown to work."""

from orchestrator.planner.accounting.quota_checks import quota_violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.evicting import (
    ROOM_IS_MISSING,
    carry_out,
    lacks_only,
    move_elsewhere,
    promise_places,
)
from orchestrator.planner.actions.hopeless import Hopeless
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import Waiting, Workload
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.moving import MovePolicy
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.repacking import repack_for
from orchestrator.planner.preemption.search import preempt_for
from orchestrator.planner.preemption.victim_selection import VictimSelector
from orchestrator.planner.session import Session

_MAX_FAILURES = 8
_MAX_NODES = 24


def reclaim_within_quota(session: Session) -> None:
    """For workloads that the quota of their project covers."""
    _reclaim(session, EntitlementTier.GUARANTEED, work_percent=40)


def reclaim_within_fair_share(session: Session) -> None:
    """For workloads that their project's fair share covers."""
    _reclaim(session, EntitlementTier.FAIR, work_percent=20)


def _reclaim(session: Session, level: EntitlementTier, *, work_percent: int) -> None:
    """For every workload that only lacks room: evict what it may and must, or nothing."""
    waiting = [
        workload
        for workload in lacks_only(session, (*ROOM_IS_MISSING, Waiting.PROJECT_LIMIT))
        if session.tier(workload, session.next_chunk(workload), levels=1) is level
    ]
    if not waiting:
        return
    session.work.allow(work_percent)
    selector = VictimSelector(session, session.once(Candidates), ReclaimPolicy(session))
    hopeless = Hopeless()
    moving = MovesWithinQuota(session)
    for turns in session.turns_left_over_first(waiting):
        while (workload := session.next_turn(turns)) is not None:
            again = None
            if _may_reclaim(session, workload, level) and reclaim_for(
                session, workload, selector, hopeless, moving
            ):
                again = workload if session.next_chunk(workload) else None
            turns.settle(workload.project, again)


def _may_reclaim(session: Session, workload: Workload, level: EntitlementTier) -> bool:
    chunk = session.next_chunk(workload)
    requested = chunk_amounts(chunk)
    if not any(requested):
        return False
    # The project alone: departments are compared where the lineages part, victim by victim.
    if session.tier(workload, chunk, levels=1) is not level:
        return False
    return quota_violation(session.ledger, workload, requested) is None and not session.kept_back(
        workload, chunk
    )


def reclaim_for(
    session: Session,
    workload: Workload,
    selector: VictimSelector,
    hopeless: Hopeless,
    moving: "MovesWithinQuota",
) -> bool:
    """Evict borrowed work of others for the next chunk; or leave everything as it was."""
    chunk = session.next_chunk(workload)
    owner = (workload.project, workload.preemptible)
    if hopeless.includes(session, workload, chunk, owner):
        return False
    outcome = preempt_for(session, workload, chunk, selector)
    if outcome is None:
        within_quota = session.tier(workload, chunk) is EntitlementTier.GUARANTEED
        if within_quota and moving.evict_and_move(workload):
            return True
        hopeless.add(session, workload, chunk, owner)
        return False
    losses, placed = outcome
    moved = move_elsewhere(session, losses)
    carry_out(session, workload, losses, placed)
    promise_places(session, losses, moved)
    return True


class MovesWithinQuota:
    """Evictions of borrowed work and moves of covered work in one step, for claims within the quota.

    A search without success is expensive: after _MAX_FAILURES no more are tried in this decision.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cap = session.snapshot.settings.max_consolidation_victims
        self._failures = 0

    def evict_and_move(self, workload: Workload) -> bool:
        """Make room for the workload's next chunk, or leave everything as it was."""
        session = self._session
        if self._cap == 0 or self._failures >= _MAX_FAILURES:
            return False
        chunk = session.next_chunk(workload)
        policy = MovePolicy(self._cap, ReclaimPolicy(session))
        selector = VictimSelector(session, session.once(Candidates), policy, max_nodes=_MAX_NODES)
        outcome = preempt_for(session, workload, chunk, selector)
        if outcome is None:
            outcome = repack_for(session, workload, chunk, selector)
        if outcome is None:
            self._failures += 1
            return False
        losses, placed = outcome
        evicted = [(victim, reason) for victim, reason in losses if not victim.is_move]
        places = move_elsewhere(session, evicted) | policy.moved
        carry_out(session, workload, losses, placed)
        promise_places(session, losses, places)
        return True
