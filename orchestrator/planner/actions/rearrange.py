"""Other places for what this decision has started already, so that one more request fits and nobody has to move.

Requests find their places one by one. Without a second look at them together, work for which room has just been made
could lose it to work that fits elsewhere too, and room would be made for it again, and again.
"""

from collections.abc import Iterable, Sequence

from orchestrator.planner.actions.evicting import ROOM_IS_MISSING, shape_of
from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.gangs import Chunk, chunk_amounts, chunk_gpu_milli
from orchestrator.planner.model import Workload

_MOST_STARTED = 64
_FAILURES = 16

Part = tuple[Workload, Chunk]


class Rearranger:
    """Tries other arrangements of what is started; after 16 kinds of requests that none helped, no more are tried."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._hopeless: set[tuple[object, ...]] = set()

    def start(self, workload: Workload) -> bool:
        """Start the workload's next chunk beside all that is started, if some arrangement has room for them."""
        decision = self._decision
        reason, chunk = decision.refusals.get(workload.id), decision.next_chunk(workload)
        if reason is None or reason.code not in ROOM_IS_MISSING or len(self._hopeless) >= _FAILURES:
            return False
        if not 0 < decision.count_granted() <= _MOST_STARTED:
            return False
        started = [each for name in decision.tree.projects for each in decision.granted(name)]
        shape = (workload.project, shape_of(decision, workload, chunk))
        asked = chunk_amounts(chunk)
        if shape in self._hopeless or not asked[0] or decision.refusal(workload, chunk) is not None:
            return False
        found = self._arrangement(workload, chunk, started) if self._could_fit(asked[0]) else None
        if found is None:
            self._hopeless.add(shape)
            return False
        for each in started:
            decision.cancel(each)
        for each, placed in found:
            decision.grant(each, placed)
        return True

    def _could_fit(self, gpu_milli: int) -> bool:
        nodes = self._decision.ledger.nodes
        return sum(each.later_milli for each in nodes if each.node.schedulable) >= gpu_milli

    def _arrangement(
        self, workload: Workload, chunk: Chunk, started: Sequence[Workload]
    ) -> list[tuple[Workload, Placed]] | None:
        """Places for everything, by themselves and on the ledger; None, with the ledger as it was, if none is found."""
        decision = self._decision
        parts = [(each, group) for each in started for group in decision.granted_chunks(each)]
        checkpoint = decision.ledger.checkpoint()
        for each in started:
            decision.suspend(each)
        new = (workload, chunk)
        largest = sorted([new, *parts], key=lambda part: -chunk_gpu_milli(part[1]))
        for order in ([new, *parts], largest):
            mark = decision.ledger.checkpoint()
            found = self._place(order)
            if found is not None:
                placed = {id(part): where for part, where in zip(order, found, strict=True)}
                return [(part[0], placed[id(part)]) for part in (*parts, new)]
            decision.ledger.rollback(mark)
        decision.ledger.rollback(checkpoint)
        return None

    def _place(self, parts: Iterable[Part]) -> list[Placed] | None:
        found: list[Placed] = []
        for workload, chunk in parts:
            placed = self._decision.place_all(workload, chunk)
            if placed is None or any(where.promised for _, where in placed):
                return None
            found.append(placed)
        return found
