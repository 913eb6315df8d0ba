"""Evict pods that hold GPUs and cannot work: of gangs below their minimum, and those with a device of another claim.

Two schedulers may give one device to two claims at the same moment, which the API server does not prevent. The
scheduler cannot take back the claim of the other one, so it evicts its own pod.
"""

from orchestrator.planner.model import Eviction, PodState
from orchestrator.planner.session import Session

STALE_RULE = "stale-gang"
DOUBLE_CLAIM_RULE = "double-claim"


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
        if not (session.limits.may_evict([survivors]) and session.limits.budgets_allow(survivors)):
            continue
        message = f"{workload.name} runs with fewer pods than it needs: all start again together"
        for pod in survivors:
            session.ledger.evict(workload, pod)
        session.take(Eviction(pod.id, workload.id, workload.id, STALE_RULE, message) for pod in survivors)
        session.end_useless_promises(workload.id)


def evict_double_holders(session: Session) -> None:
    """Evict the pods of ours whose claims hold devices that other claims hold too, whatever their quota."""
    doubles = session.ledger.claims.doubles
    if not doubles:
        return
    for workload in sorted(session.running(), key=lambda workload: workload.id):
        holders = [
            (pod, next(key for key in pod.claims if key in doubles))
            for pod in workload.pods
            if pod.state is PodState.ALLOCATED and not doubles.keys().isdisjoint(pod.claims)
        ]
        for pod, _ in holders:
            session.ledger.evict(workload, pod)
        session.take(
            Eviction(
                pod.id,
                workload.id,
                workload.id,
                DOUBLE_CLAIM_RULE,
                f"{pod.name} starts again with other devices: another scheduler gave a device of its claim {key}, or "
                f"too much of it, to the claim {doubles[key]} at the same moment",
            )
            for pod, key in holders
        )
