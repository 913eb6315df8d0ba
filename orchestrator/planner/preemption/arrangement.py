"""Finds other placements for workloads that this decision starts, so that one more chunk fits, with or without
evictions.

Chunks are placed one by one. So the last chunk can have no placement although all chunks would fit with other
placements. The next decision would then migrate a pod that has just started.
"""

from collections.abc import Iterable, Sequence

from orchestrator.planner.gangs import Chunk, chunk_gpu_milli
from orchestrator.planner.model import DEVICE_MILLI, Workload
from orchestrator.planner.placements import Placed
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

Arrangement = list[tuple[Workload, Placed]]
"""The new placements of started workloads, chunk by chunk."""
Placing = tuple[Placed, Arrangement]
"""The placement of one more chunk, and the new placements of started workloads."""
Part = tuple[Workload, Chunk]

_MAX_STARTED = 64
_MAX_FAILURES = 4
_WORK_OF_PART = 50
_WORK_PERCENT = 5


class ArrangedSearches:
    """The bound on searches that also try other placements for started workloads: at most 4 failures in a decision.

    `allowance`: the part of the decision's bound that these searches may use.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._failures = 0
        self.allowance = session.work.part(_WORK_PERCENT)

    def started(self, chunk: Chunk) -> list[Workload]:
        """Return the workloads that may get other placements so that the chunk fits.

        Workloads that an earlier decision nominated keep their seats. The result is empty if each pod needs at most one
        GPU, because other placements do not help such pods.
        """
        if self.is_used_up or all(pod.request.gpu_milli <= DEVICE_MILLI for pod in chunk):
            return []
        started = started_workloads(self._session)
        return [other for other in started if other.id not in self._session.restored]

    @property
    def is_used_up(self) -> bool:
        """Whether no more such searches are made in this decision."""
        left = self.allowance.left
        return self._failures >= _MAX_FAILURES or (left is not None and left <= 0)

    def note_failure(self) -> None:
        """Count a failed search."""
        self._failures += 1


def started_workloads(session: Session) -> list[Workload]:
    """Return the workloads that this decision has started; empty if more than _MAX_STARTED."""
    if not 0 < session.seats.count(SeatState.NEW) <= _MAX_STARTED:
        return []
    return [other for name in session.tree.projects for other in session.started(name)]


def place_beside(
    session: Session, workload: Workload, chunk: Chunk, started: Sequence[Workload], *, only_now: bool
) -> Placing | None:
    """Place the chunk on the ledger, with other placements for `started` if necessary; None if it does not fit."""
    checkpoint, nominees = session.ledger.checkpoint(), session.steady_nominees()
    placed = session.place_all(workload, chunk)
    if placed is not None and session.keeps_nominees(nominees):
        return placed, []
    session.ledger.rollback(checkpoint)
    searches = session.once(ArrangedSearches)
    if not started or searches.is_used_up:
        return None
    with session.work.within(searches.allowance):
        return arrange(session, workload, chunk, started, only_now=only_now)


def arrange(
    session: Session, workload: Workload, chunk: Chunk, started: Sequence[Workload], *, only_now: bool
) -> Placing | None:
    """Place the chunk and all started workloads again on the ledger. Return None, with no change, if they do not fit.

    `only_now`: use only GPUs that are free now, so that the chunk and all started workloads start in this decision.
    """
    parts = [(other, group) for other in started for group in session.seats.new_chunks(other)]
    session.work.spend(_WORK_OF_PART * len(parts))
    checkpoint, nominees = session.ledger.checkpoint(), session.steady_nominees()
    # Remove them only from the ledger. In the session they still count as started, so that reservations do
    # not block their nodes.
    for other in started:
        session.ledger.unplace(other, session.seats.placed(other, SeatState.NEW))
    new = (workload, chunk)
    largest = sorted([new, *parts], key=lambda part: -chunk_gpu_milli(part[1]))
    for order in ([new, *parts], largest):
        mark = session.ledger.checkpoint()
        found = _place(session, order, only_now=only_now)
        # Check the constraints at the end. The first pod of an affinity group may be placed without others,
        # and the new order can make another pod the first.
        if (
            found is not None
            and session.meets_constraints([entry for each in found for entry in each])
            and session.keeps_nominees(nominees)
        ):
            placed = {id(part): where for part, where in zip(order, found, strict=True)}
            return placed[id(new)], [(part[0], placed[id(part)]) for part in parts]
        session.ledger.rollback(mark)
    session.ledger.rollback(checkpoint)
    return None


def _place(session: Session, parts: Iterable[Part], *, only_now: bool) -> list[Placed] | None:
    found: list[Placed] = []
    for workload, chunk in parts:
        placed = session.place_all(workload, chunk)
        if placed is None or (only_now and any(where.waits for _, where in placed)):
            return None
        found.append(placed)
    return found


def arrange_again(session: Session, arrangement: Arrangement) -> None:
    """Put an arrangement on the ledger again after a rollback."""
    for other in _workloads(arrangement):
        session.ledger.unplace(other, session.seats.placed(other, SeatState.NEW))
    for other, placed in arrangement:
        for pod, where in placed:
            session.ledger.place(other, pod, where)


def carry_out_arrangement(session: Session, arrangement: Arrangement) -> None:
    """Record the new placements of the started workloads, which are on the ledger already."""
    for other in _workloads(arrangement):
        for pod, _ in session.seats.placed(other, SeatState.NEW):
            session.seats.remove(pod)
        session.queues.renew(other.id)
    for other, placed in arrangement:
        session.grant(other, placed)


def _workloads(arrangement: Arrangement) -> Iterable[Workload]:
    return {other.id: other for other, _ in arrangement}.values()
