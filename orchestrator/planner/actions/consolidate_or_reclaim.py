"""Places for whoever has a claim, in the order of turns: consolidation where that makes them, else reclaim.

Moves for all, then evictions for all, would move work for somebody whose room then goes to a better claim.
"""

from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.consolidate import Consolidation, can_consolidate_for
from orchestrator.planner.actions.reclaim import Reclaim, can_reclaim_for
from orchestrator.planner.session import Session


def consolidate_or_reclaim_within_quota(session: Session) -> None:
    """For workloads that quotas cover."""
    _consolidate_or_reclaim(session, EntitlementTier.GUARANTEED, moves_percent=10, work_percent=40)


def consolidate_or_reclaim_within_fair_share(session: Session) -> None:
    """For workloads that fair shares cover."""
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
    # Of its own part: searches for moves that find nothing must not use up what evictions may do.
    part_of_moves = session.work.part(moves_percent)
    waiting = [*moves, *(workload for workload in takes if workload.id not in movable)]
    for turns in session.turns_left_over_first(waiting):
        while (workload := session.next_turn(turns)) is not None:
            served = False
            # Those before it may have used up what covered it; then it has its turn later.
            if workload.id in movable and session.tier(workload, session.next_chunk(workload)) <= level:
                with session.work.within(part_of_moves):
                    served = session.work.take_turn() and consolidation.move_for(workload)
            served = served or (workload.id in taking and reclaim.evict_for(workload))
            turns.settle(workload.project, workload if served and session.next_chunk(workload) else None)
    reclaim.finish()
