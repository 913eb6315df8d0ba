"""Move running work together so that a larger request fits: nobody loses, everybody who is moved has a place."""

from orchestrator.planner.actions.evicting import (
    ROOM_IS_MISSING,
    carry_out,
    may_make_room,
    move_elsewhere,
    shape_of,
)
from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import Amounts, Workload
from orchestrator.planner.room import Pool, RoomFinder, Taken
from orchestrator.planner.search import make_room
from orchestrator.planner.victims import Ruling, movable

_FAILURES = 16


class MovingLaw:
    """Any work that can be taken back may be moved, if all of it finds a place."""

    def __init__(self, cap: int | None) -> None:
        self._cap = cap
        self.failures = 0
        self.moved: dict[str, Placed] = {}

    def ruling(self, workload: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule of consolidation."""
        del asked, victim
        return Ruling("consolidation", f"moved to another place so that {workload.name} fits")

    def tolerates(self, decision: Decision, taken: Taken) -> bool:
        """Whether those who went so far all find a place."""
        checkpoint = decision.ledger.checkpoint()
        moved = move_elsewhere(decision, taken)
        decision.ledger.rollback(checkpoint)
        return sum(len(placed) for placed in moved.values()) == sum(len(each.pods) for each, _ in taken)

    def accepts(self, decision: Decision, workload: Workload, taken: Taken) -> bool:
        """Whether all victims are placed again, and are not too many."""
        del workload
        pods = sum(len(victim.pods) for victim, _ in taken)
        if not decision.may_evict(victim.pods for victim, _ in taken) or (
            self._cap is not None and len(taken) > self._cap
        ):
            return False
        self.moved = move_elsewhere(decision, taken)
        return sum(len(placed) for placed in self.moved.values()) == pods


def consolidate(decision: Decision) -> None:
    """For preemptible workloads that lack room although enough is free, in the order of turns.

    A search without success is expensive: after 16 kinds of workloads for which nothing could be moved, no more are
    tried in this decision.
    """
    cap = decision.snapshot.settings.max_consolidation_victims
    if cap == 0:
        return
    waiting = [each for each in may_make_room(decision, ROOM_IS_MISSING) if each.preemptible]
    if not waiting:
        return
    law = MovingLaw(cap)
    hopeless: set[tuple[object, ...]] = set()
    turns = decision.turns(waiting)
    while (workload := turns.pop()) is not None:
        again = None
        if _consolidate_for(decision, workload, law, hopeless) and decision.next_chunk(workload):
            again = workload
        turns.settle(workload.project, again)


def _consolidate_for(
    decision: Decision, workload: Workload, law: MovingLaw, hopeless: set[tuple[object, ...]]
) -> bool:
    chunk = decision.next_chunk(workload)
    asked = chunk_amounts(chunk)
    shape = shape_of(decision, workload, chunk)
    if not asked[0] or shape in hopeless or law.failures >= _FAILURES:
        return False
    if decision.refusal(workload, chunk) is not None:
        return False
    if sum(each.later_milli for each in decision.ledger.nodes if each.node.schedulable) < asked[0]:
        hopeless.add(shape)  # moving frees nothing
        return False
    finder = RoomFinder(decision, Pool({"": movable(decision, workload)}))
    found = make_room(decision, workload, chunk, finder, law)
    if found is None:
        law.failures += 1
        hopeless.add(shape)
        return False
    carry_out(decision, workload, *found)
    for name, places in law.moved.items():
        decision.promise(decision.workload(name), places)
    return True
