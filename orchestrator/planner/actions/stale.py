"""Give up gangs that lost a member: what is left of them holds GPUs and gets nothing done."""

from orchestrator.planner.model import Eviction, PodState, Workload
from orchestrator.planner.session import Session

_SECOND_US = 1_000_000


def is_stale(workload: Workload, now_us: int, grace_seconds: int) -> bool:
    """Whether the gang has been below its minimum for longer than the grace period; a negative grace never ends."""
    grace = grace_seconds if workload.stale_grace_seconds is None else workload.stale_grace_seconds
    if not workload.stale_since_us or grace < 0:
        return False
    return now_us - workload.stale_since_us >= grace * _SECOND_US


def evict_stale(session: Session) -> None:
    """Evict what is left of every stale gang, as far as the cap on evictions and the budgets allow."""
    settings = session.snapshot.settings
    for workload in sorted(session.below_minimum(), key=lambda workload: workload.id):
        if session.is_whole(workload) or not is_stale(
            workload, session.snapshot.now_us, settings.stale_grace_seconds
        ):
            continue
        survivors = [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]
        if not (session.may_evict([survivors]) and session.budgets_allow(survivors)):
            continue
        message = f"{workload.name} runs with fewer pods than it needs: all start again together"
        for pod in survivors:
            session.ledger.evict(workload, pod)
        session.take(Eviction(pod.id, workload.id, workload.id, "stale-gang", message) for pod in survivors)
