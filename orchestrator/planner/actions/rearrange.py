"""Other places for what this decision has started already, so that one more request fits and nobody has to move.

Requests find their places one by one. Without a second look at them together, work for which room has just been made
could lose it to work that fits elsewhere too, and room would be made for it again, and again.
"""

from orchestrator.planner.gangs import chunk_amounts, shape_of
from orchestrator.planner.model import CAPACITY_REASONS, Workload
from orchestrator.planner.preemption.arrangement import arrange, carry_out_arrangement, started_workloads
from orchestrator.planner.session import Session

_FAILURES = 16


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
        started = started_workloads(session)
        if not started:
            return False
        tier = session.reservations.key(workload, chunk)
        beside = session.shape_beside_others(chunk)
        shape = (workload.project, tier, *beside, *shape_of(workload, chunk))
        requested = chunk_amounts(chunk)
        if shape in self._hopeless or not requested[0] or session.violation(workload, chunk) is not None:
            return False
        placing = None
        if self._could_fit(requested[0]):
            placing = arrange(session, workload, chunk, started, only_now=True)
        if placing is None:
            self._hopeless.add(shape)
            return False
        placed, elsewhere = placing
        carry_out_arrangement(session, elsewhere)
        session.grant(workload, placed)
        return True

    def _could_fit(self, gpu_milli: int) -> bool:
        nodes = self._session.ledger.nodes
        return sum(account.later_milli for account in nodes if account.node.schedulable) >= gpu_milli
