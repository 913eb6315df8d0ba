"""Make GPUs free for entitled workloads, in priority order: by consolidation if that is enough, otherwise by reclaim.

Reclaim evicts borrowed pods for projects below their entitlement, and only after the whole chunk has a placement.

Consolidation and reclaim are both tried for a workload before the next workload is tried. If all migrations came first,
a more entitled workload could take the GPUs that a migration made free.
"""

from collections.abc import Iterable

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota_checks import quota_violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.consolidate import (
    Consolidation,
    can_consolidate_for,
    free_milli,
)
from orchestrator.planner.actions.evicting import (
    Hopeless,
    carry_out,
    may_evict_now,
    nominate_victims,
    waiting_for,
)
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import CAPACITY_REASONS, Waiting, Workload
from orchestrator.planner.preemption.arrangement import ArrangedSearches
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.repacking import repack_for
from orchestrator.planner.preemption.rescheduling import MovePolicy, move_elsewhere
from orchestrator.planner.preemption.search import Outcome, preempt_for, put_again
from orchestrator.planner.preemption.victim_selection import MAX_NODES, Losses, VictimSelector
from orchestrator.planner.session import Session

_MAX_FAILURES = 8
_MAX_FAILED_EXCHANGES = 4


def can_reclaim_for(session: Session, level: EntitlementTier) -> list[Workload]:
    """Return the workloads that wait for capacity, may evict pods, and have this tier.

    The tier is computed from the project alone, without its departments.
    """
    return [
        workload
        for workload in may_evict_now(
            session, waiting_for(session, (*CAPACITY_REASONS, Waiting.PROJECT_LIMIT))
        )
        if session.tier(workload, session.next_chunk(workload), levels=1) is level
    ]


class Reclaim:
    """Evictions for the workloads of one tier, one workload at a time."""

    def __init__(self, session: Session, level: EntitlementTier) -> None:
        self._session = session
        self._level = level
        self._selector = VictimSelector(session, session.once(Candidates), ReclaimPolicy(session))
        self._hopeless = Hopeless()
        self._moving = MovesWithinQuota(session)
        self._displaced: dict[str, Losses] = {}

    def evict_for(self, workload: Workload) -> bool:
        """Evict borrowed pods of other projects so that the next chunk fits. If that is impossible, change nothing."""
        session = self._session
        losses = None
        if _may_reclaim(session, workload, self._level):
            losses = reclaim_for(session, workload, self._selector, self._hopeless, self._moving)
        if losses:
            self._displaced.setdefault(workload.id, []).extend(losses)
        if losses is None or not session.next_chunk(workload):
            self._settle(workload.id)
        return losses is not None

    def finish(self) -> None:
        """Nominate the victims of workloads that are still incomplete to other placements."""
        for name in list(self._displaced):
            self._settle(name)

    def _settle(self, name: str) -> None:
        """Nominate the victims of the workload to other placements, after the workload has its last pod.

        If this came earlier, the next pod of the workload could evict a victim again from its new placement.
        """
        if losses := self._displaced.pop(name, None):
            moved = move_elsewhere(self._session, losses)
            nominate_victims(self._session, self._session.workload(name), losses, moved)


def _may_reclaim(session: Session, workload: Workload, level: EntitlementTier) -> bool:
    chunk = session.next_chunk(workload)
    requested = chunk_amounts(chunk)
    if not any(requested):
        return False
    # Only the project counts here; departments are compared for each victim.
    if session.tier(workload, chunk, levels=1) is not level:
        return False
    return quota_violation(session.ledger, workload, requested) is None and not session.reservations.limit(
        workload, chunk
    )


def reclaim_for(
    session: Session,
    workload: Workload,
    selector: VictimSelector,
    hopeless: Hopeless,
    moving: "MovesWithinQuota",
) -> Losses | None:
    """Evict borrowed pods of other projects for the next chunk. If that is impossible, change nothing and return
    None.

    Return the victims without migrated pods. The caller nominates them to other placements.
    """
    chunk = session.next_chunk(workload)
    owner = (workload.project, workload.preemptible)
    if hopeless.includes(session, workload, chunk, owner):
        return None
    started = session.once(ArrangedSearches).started(chunk)
    checkpoint = session.ledger.checkpoint()
    within_quota = session.tier(workload, chunk) is EntitlementTier.GUARANTEED
    outcome = preempt_for(session, workload, chunk, selector, started)
    if outcome is None:
        evicted = moving.evict_and_move(workload) if within_quota else None
        if evicted is None:
            hopeless.add(session, workload, chunk, owner)
        return evicted
    fewer = moving.evict_fewer(workload, selector, outcome, checkpoint) if within_quota else None
    if fewer is None:
        carry_out(session, workload, *outcome)
    return outcome[0] if fewer is None else fewer


class MovesWithinQuota:
    """Evictions of borrowed pods together with migrations of other pods, for requests within quota.

    A failed search is expensive. After _MAX_FAILURES failures, `evict_and_move` searches no more in this decision;
    after _MAX_FAILED_EXCHANGES failures, `evict_fewer` does not.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cap = session.snapshot.settings.max_consolidation_victims
        self._failures = 0
        self._failed_exchanges = 0

    def evict_and_move(self, workload: Workload) -> Losses | None:
        """Evict and migrate pods so that the next chunk fits. Return the evicted pods. Return None, with no change, if
        that is impossible.
        """
        session = self._session
        if self._cap == 0 or self._failures >= _MAX_FAILURES:
            return None
        chunk = session.next_chunk(workload)
        policy = MovePolicy(self._cap, ReclaimPolicy(session))
        selector = VictimSelector(session, session.once(Candidates), policy, max_nodes=MAX_NODES)
        outcome = preempt_for(session, workload, chunk, selector)
        if outcome is None:
            outcome = repack_for(session, workload, chunk, selector)
        if outcome is None:
            self._failures += 1
            return None
        return self._carry_out(workload, policy, outcome)

    def evict_fewer(
        self, workload: Workload, selector: VictimSelector, outcome: Outcome, checkpoint: int
    ) -> Losses | None:
        """Evict only some of the outcome's victims, migrate other pods, and return the evicted victims.

        Return None, with the outcome still on the ledger, if all victims are needed. `checkpoint` is from before the
        outcome.
        """
        session = self._session
        if self._cap == 0 or self._failed_exchanges >= _MAX_FAILED_EXCHANGES:
            return None
        lost = self._lost(outcome[0])
        if lost is None:
            return None
        session.ledger.rollback(checkpoint)
        policy = MovePolicy(self._cap, ReclaimPolicy(session), lost)
        moves = VictimSelector(session, session.once(Candidates), policy, max_nodes=MAX_NODES)
        hindrances = dict(session.limits.hindrances)
        fewer = preempt_for(session, workload, session.next_chunk(workload), moves)
        session.limits.hindrances = hindrances
        losses = [] if fewer is None else fewer[0]
        evicted = self._running([victim for victim, _ in losses if not victim.is_move])
        if fewer is not None and evicted and evicted < lost:
            return self._carry_out(workload, policy, fewer)
        self._failed_exchanges += 1
        session.ledger.rollback(checkpoint)
        put_again(session, workload, selector, outcome)
        return None

    def _lost(self, losses: Losses) -> set[str] | None:
        """Return the ids of the running pods of the victims that fit on no other node. Return None if migrations cannot
        replace an eviction.

        Migrations free no GPUs, so the free GPUs of all nodes together must be enough for the smallest of these
        victims.
        """
        session = self._session
        if len(losses) < 2:
            return None
        checkpoint = session.ledger.checkpoint()
        moved = move_elsewhere(session, losses)
        free = free_milli(session)
        session.ledger.rollback(checkpoint)
        victims = [victim for victim, _ in losses if victim.workload.id not in moved]
        victims = [victim for victim in victims if self._running([victim])]
        smallest = min((chunk_amounts(victim.pods)[0] for victim in victims), default=0)
        return self._running(victims) if len(victims) > 1 and 0 < smallest <= free else None

    def _running(self, victims: Iterable[Victim]) -> set[str]:
        """Return the ids of the victims' running pods. Nominated pods are not running yet."""
        is_nominated = self._session.seats.is_nominated
        return {pod.id for victim in victims for pod in victim.pods if not is_nominated(pod)}

    def _carry_out(self, workload: Workload, policy: MovePolicy, outcome: Outcome) -> Losses:
        carry_out(self._session, workload, *outcome)
        losses = outcome[0]
        nominate_victims(
            self._session, workload, [entry for entry in losses if entry[0].is_move], policy.moved
        )
        return [entry for entry in losses if not entry[0].is_move]


def consolidate_or_reclaim_within_quota(session: Session) -> None:
    """Make GPUs free for workloads within quota."""
    _consolidate_or_reclaim(session, EntitlementTier.GUARANTEED, moves_percent=10, work_percent=40)


def consolidate_or_reclaim_within_fair_share(session: Session) -> None:
    """Make GPUs free for workloads within their fair share."""
    _consolidate_or_reclaim(session, EntitlementTier.FAIR, moves_percent=5, work_percent=20)


def _consolidate_or_reclaim(
    session: Session, level: EntitlementTier, *, moves_percent: int, work_percent: int
) -> None:
    moves = can_consolidate_for(session, level) if "consolidate" in session.actions else []
    takes = can_reclaim_for(session, level) if "reclaim" in session.actions else []
    if not moves and not takes:
        return
    session.work.allow(work_percent)
    movable = {workload.id for workload in moves}
    taking = {workload.id for workload in takes}
    consolidation, reclaim = Consolidation(session), Reclaim(session, level)
    # Migrations have a separate bound on work, so that failed searches leave enough work for the evictions.
    part_of_moves = session.work.part(moves_percent)
    waiting = [*moves, *(workload for workload in takes if workload.id not in movable)]
    for queue in session.queues_left_over_first(waiting):
        while (workload := session.next_workload(queue)) is not None:
            served = False
            # If an earlier workload has used up the quota, a later tier serves this workload.
            if workload.id in movable and session.tier(workload, session.next_chunk(workload)) <= level:
                with session.work.within(part_of_moves):
                    served = session.work.count_workload() and consolidation.move_for(workload)
            served = served or (workload.id in taking and reclaim.evict_for(workload))
            queue.settle(workload.project, workload if served and session.next_chunk(workload) else None)
    reclaim.finish()
