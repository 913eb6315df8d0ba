"""Repeat evictions for nominations whose GPUs are still in use, because the operator crashed before it evicted.

The operator writes a nomination before it evicts. So the next leader can find a nomination to GPUs that are in use. The
scheduler repeats the evictions before it gives free GPUs to other workloads. Otherwise younger workloads would take
those nominated GPUs that are already free.
"""

from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.consolidate import consolidate_for
from orchestrator.planner.actions.evicting import Hopeless, nominate_victims
from orchestrator.planner.actions.preempt import PriorityPolicy, preempt_lower_for
from orchestrator.planner.actions.reclaim import MovesWithinQuota, reclaim_for
from orchestrator.planner.model import PodState, Workload
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.rescheduling import MovePolicy, move_elsewhere
from orchestrator.planner.preemption.victim_selection import MAX_NODES, VictimSelector
from orchestrator.planner.session import Session

_WORK_PERCENT = 20


def remake_lost_nominations(session: Session) -> None:
    """Evict pods for workloads whose nomination could not be restored and that fit nowhere else, oldest first."""
    lost = [
        workload
        for workload in session.nominated_workloads()
        if any(
            pod.nominated_node is not None and pod.state is PodState.PENDING
            for pod in session.next_chunk(workload)
        )
    ]
    if not lost:
        return
    session.work.allow(_WORK_PERCENT)
    reclaim = VictimSelector(session, session.once(Candidates), ReclaimPolicy(session))
    for workload in sorted(lost, key=lambda workload: (workload.created_at_us, workload.id)):
        if not session.work.count_workload():
            return
        if not _fits(session, workload):
            _remake(session, session.workload(workload.id), reclaim)


def _fits(session: Session, workload: Workload) -> bool:
    """Return whether the next chunk fits without evictions, or may not start at all; `allocate` handles both."""
    chunk = session.next_chunk(workload)
    if session.violation(workload, chunk) is not None:
        return True
    checkpoint = session.ledger.checkpoint()
    placed = session.place_all(workload, chunk)
    session.ledger.rollback(checkpoint)
    return placed is not None


def _remake(session: Session, workload: Workload, reclaim: VictimSelector) -> bool:
    """Make GPUs free for the workload: by consolidation, then by reclaim, then by preemption inside its project.

    Return whether one of them succeeded.
    """
    candidates = session.once(Candidates)
    cap = session.snapshot.settings.max_consolidation_victims
    moves = VictimSelector(session, candidates, MovePolicy(cap), max_nodes=MAX_NODES)
    if workload.preemptible and cap != 0 and consolidate_for(session, workload, moves, Hopeless()):
        return True
    tier = session.tier(workload, session.next_chunk(workload), levels=1)
    moving = MovesWithinQuota(session)
    if tier is not EntitlementTier.OVER_SHARE:
        losses = reclaim_for(session, workload, reclaim, Hopeless(), moving)
        if losses is not None:
            nominate_victims(session, workload, losses, move_elsewhere(session, losses))
            return True
    lower = VictimSelector(session, candidates, PriorityPolicy(session))
    return preempt_lower_for(session, workload, lower, Hopeless())
