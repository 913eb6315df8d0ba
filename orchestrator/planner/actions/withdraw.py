"""Undo starts that a later step of the same decision made impossible. The next decision tries them again.

Example: a pod with required affinity starts beside another pod, and a later step evicts the other pod. The operator has
not carried out the decision yet, so the pod is pending again. The next decision sees the eviction.
"""

from operator import attrgetter

from orchestrator.planner.obstacles import ConstraintsOvertaken
from orchestrator.planner.session import Session

_CHUNK = attrgetter("chunk")


def withdraw_broken(session: Session) -> None:
    """Undo starts whose constraints between pods are violated at the end of the decision.

    A start never violates the constraints of pods that started earlier, as in kube-scheduler. So a decision is checked
    only if it also evicts pods or undoes starts.
    """
    neighbours = session.ledger.neighbours
    if neighbours is None or not (session.seats.evictions or session.has_lifted):
        return
    by_name = session.ledger.by_name
    while True:
        seats = sorted(session.seats.new(), key=_CHUNK)
        broken = neighbours.first_broken([(seat.pod, by_name[seat.where.node].position) for seat in seats])
        if broken is None:
            return
        workload = next(seat.workload for seat in seats if seat.pod is broken)
        session.lift(workload)
        session.refuse(workload, ConstraintsOvertaken())
        session.left_over[workload.id] = None
