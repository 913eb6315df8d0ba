"""Give up gangs that lost a member: what is left of them holds GPUs and gets nothing done."""

from orchestrator.planner.model import Eviction
from orchestrator.planner.session import Session


def evict_stale(session: Session) -> None:
    """Evict what is left of every stale gang, as far as the cap on evictions and the budgets allow."""
    for workload, survivors in session.stale_gangs():
        if not (session.may_evict([survivors]) and session.budgets_allow(survivors)):
            continue
        message = f"{workload.name} runs with fewer pods than it needs: all start again together"
        for pod in survivors:
            session.ledger.evict(workload, pod)
        session.take(Eviction(pod.id, workload.id, workload.id, "stale-gang", message) for pod in survivors)
