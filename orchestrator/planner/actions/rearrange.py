"""Other places for what this decision has started already, so that one more request fits and nobody has to move.

Requests find their places one by one. Without a second look at them together, work for which room has just been made
could lose it to work that fits elsewhere too, and room would be made for it again, and again.
"""

from collections.abc import Iterable, Sequence

from orchestrator.planner.gangs import Chunk, chunk_amounts, chunk_gpu_milli, shape_of
from orchestrator.planner.model import CAPACITY_REASONS, Workload
from orchestrator.planner.placements import Placed
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

_MAX_STARTED = 64
_FAILURES = 16

Part = tuple[Workload, Chunk]


class Rearranger:
    """Tries other arrangements of what is started; after 16 kinds of requests that none helped, no more are tried."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hopeless: set[tuple[object, ...]] = set()

    def start(self, workload: Workload) -> bool:
        """Start the workload's next chunk beside all that is started, if some arrangement has room for them."""
        session = self._session
        chunk = session.next_chunk(workload)
        if not session.waits_for(workload, CAPACITY_REASONS) or len(self._hopeless) >= _FAILURES:
            return False
        if not 0 < session.seats.count(SeatState.NEW) <= _MAX_STARTED:
            return False
        started = [other for name in session.tree.projects for other in session.started(name)]
        tier = session.reservations.key(workload, chunk)
        shape = (workload.project, tier, *shape_of(workload, chunk))
        requested = chunk_amounts(chunk)
        if shape in self._hopeless or not requested[0] or session.violation(workload, chunk) is not None:
            return False
        arrangement = self._arrangement(workload, chunk, started) if self._could_fit(requested[0]) else None
        if arrangement is None:
            self._hopeless.add(shape)
            return False
        for other in started:
            session.lift(other)
        for other, placed in arrangement:
            for pod, where in placed:
                session.ledger.place(other, pod, where)
            session.grant(other, placed)
        return True

    def _could_fit(self, gpu_milli: int) -> bool:
        nodes = self._session.ledger.nodes
        return sum(account.later_milli for account in nodes if account.node.schedulable) >= gpu_milli

    def _arrangement(
        self, workload: Workload, chunk: Chunk, started: Sequence[Workload]
    ) -> list[tuple[Workload, Placed]] | None:
        """Places for everything, which the ledger does not have yet; None if none are found."""
        session = self._session
        parts = [(other, group) for other in started for group in session.seats.new_chunks(other)]
        checkpoint = session.ledger.checkpoint()
        # On the ledger alone: a workload with a reservation still counts as started, and its nodes are free.
        for other in started:
            session.ledger.unplace(other, session.seats.placed(other, SeatState.NEW))
        new = (workload, chunk)
        largest = sorted([new, *parts], key=lambda part: -chunk_gpu_milli(part[1]))
        arrangement = None
        for order in ([new, *parts], largest):
            mark = session.ledger.checkpoint()
            places = self._place(order)
            session.ledger.rollback(mark)
            if places is not None:
                placed = {id(part): where for part, where in zip(order, places, strict=True)}
                arrangement = [(part[0], placed[id(part)]) for part in (*parts, new)]
                break
        session.ledger.rollback(checkpoint)
        return arrangement

    def _place(self, parts: Iterable[Part]) -> list[Placed] | None:
        places: list[Placed] = []
        for workload, chunk in parts:
            placed = self._session.place_all(workload, chunk)
            if placed is None or any(where.promised for _, where in placed):
                return None
            places.append(placed)
        return places
