"""Give up gangs that lost a member: what is left of them holds GPUs and gets nothing done."""

from orchestrator.planner.model import Eviction
from orchestrator.planner.session import Session


def evict_hopeless_stale(session: Session) -> None:
    """Evict what is left of stale gangs of which nothing can start: the decision cannot make them whole.

    Claims of the same decision get what they free, and their projects hold that much less: else those would take from
    others what need not go.
    """
    _evict(session, only_hopeless=True)


def evict_stale(session: Session) -> None:
    """Evict what is left of every stale gang that the decision did not make whole."""
    _evict(session, only_hopeless=False)


def _evict(session: Session, *, only_hopeless: bool) -> None:
    """Evict stale gangs as far as the cap on evictions and the budgets allow; rooms promised to some of them end."""
    for workload, survivors in session.stale_gangs():
        if not survivors or (only_hopeless and session.next_chunk(workload)):
            continue
        if not (session.may_evict([survivors]) and session.budgets_allow(survivors)):
            continue
        message = f"{workload.name} runs with fewer pods than it needs: all start again together"
        for pod in survivors:
            session.ledger.evict(workload, pod)
        session.take(Eviction(pod.id, workload.id, workload.id, "stale-gang", message) for pod in survivors)
        session.end_useless_promises(workload.id)
