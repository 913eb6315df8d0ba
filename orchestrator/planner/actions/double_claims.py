"""One device, two claims: two schedulers decided at the same moment, which the API server does not keep them from.

Nobody can take the other's claim back, so muster gives way: its pod goes and is decided on anew.
"""

from orchestrator.planner.model import Eviction, PodState
from orchestrator.planner.session import Session

RULE = "double-claim"


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
                RULE,
                f"{pod.name} starts again with other devices: another scheduler gave a device of its claim {key}, or "
                f"too much of it, to the claim {doubles[key]} at the same moment",
            )
            for pod, key in holders
        )
