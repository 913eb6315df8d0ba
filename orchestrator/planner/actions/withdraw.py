"""Starts that a later step of the same decision made impossible: they are taken back and decided on again.

A pod with required affinity starts beside another pod; then that one is evicted. Nothing of the decision is carried out
yet, so the pod is pending again. The next decision sees the eviction.
"""

from operator import attrgetter

from orchestrator.planner.obstacles import ConstraintsOvertaken
from orchestrator.planner.session import Session

_CHUNK = attrgetter("chunk")


def withdraw_broken(session: Session) -> None:
    """Take back starts whose constraints between pods are violated after the whole decision.

    Pods that start one after the other keep all constraints of the earlier ones, as in kube-scheduler. So only a
    decision that also takes something away is checked.
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
