"""What a starving workload needs of its own project's limits, and who of that project may not take it.

Room on nodes is no use to a gang whose project stands at its limit because smaller jobs of the same project take every
GPU that one of them gives back. So as long as room is kept for a workload, what is behind it in the queue starts only
as far as the limits have room for both, or if it goes as soon as it has to.
"""

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Amounts, Workload
from orchestrator.planner.obstacles import LimitReserved
from orchestrator.planner.placement.reservations import Reservation


def reserved_limit(
    ledger: Ledger, reservation: Reservation, workload: Workload, requested: Amounts
) -> LimitReserved | None:
    """Why the workload, of the same project, may not hold that much more before the other one has started."""
    both = not workload.preemptible and not reservation.workload.preemptible
    for name in ledger.tree.lineage[workload.project]:
        held, non_preemptible = ledger.allocated[name], ledger.non_preemptible[name]
        for resource in ledger.tree.resources:
            if not (requested[resource] and reservation.requested[resource]):
                continue
            demanded = requested[resource] + reservation.requested[resource]
            full = (
                held[resource] - reservation.yielding[resource] + demanded > ledger.tree.limit[name][resource]
            )
            if full or (both and non_preemptible[resource] + demanded > ledger.tree.quota[name][resource]):
                return LimitReserved(name, requested, reservation.requested, reservation.workload.name)
    return None
