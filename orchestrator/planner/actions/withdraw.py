"""Undo starts and nominations that a later step of the same decision made impossible. The next decision tries the
starts again.

Example: a pod with required affinity starts beside another pod, and a later step evicts the other pod. The operator has
not carried out the decision yet, so the pod is pending again. The next decision sees the eviction.
"""

from operator import attrgetter

from orchestrator.planner.accounting.neighbours import Neighbours
from orchestrator.planner.obstacles import ConstraintsOvertaken
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

_CHUNK = attrgetter("chunk")


def withdraw_broken(session: Session) -> None:
    """Undo the starts whose constraints between pods are violated at the end of the decision. Replace nominations
    whose constraints are violated.

    A start never violates the constraints of pods that started earlier, as in kube-scheduler. So the starts of a
    decision are checked only if it also evicts pods or undoes starts.
    """
    neighbours = session.ledger.neighbours
    if neighbours is None:
        return
    if session.seats.evictions or session.has_lifted:
        _withdraw_starts(session, neighbours)
    _nominate_elsewhere(session)


def _withdraw_starts(session: Session, neighbours: Neighbours) -> None:
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


def _nominate_elsewhere(session: Session) -> None:
    """Nominate pods whose constraints are violated to other nodes, if other nodes fit.

    Example: a pod is nominated as the first of its affinity group. Then another pod of the group starts on another
    node, and the nominated pod must run beside it.
    """
    for state in (SeatState.NOMINATED, SeatState.KEPT):
        for name in sorted(session.seats.all_names(state)):
            workload = session.workload(name)
            placed = session.seats.placed(workload, state)
            if session.meets_constraints(placed):
                continue
            checkpoint = session.ledger.checkpoint()
            session.ledger.unplace(workload, placed)
            other = session.place_all(workload, tuple(pod for pod, _ in placed))
            if other is None:
                session.ledger.rollback(checkpoint)
            elif state is SeatState.NOMINATED:
                session.renominate(workload, other)
            else:
                session.seats.place(workload, other, state)
