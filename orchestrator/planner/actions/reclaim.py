"""Take borrowed GPUs back for projects that hold less than they may, once the whole placement is shown to work."""

from orchestrator.planner.actions.evicting import (
    ROOM_IS_MISSING,
    carry_out,
    may_make_room,
    move_elsewhere,
)
from orchestrator.planner.decision import Decision
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.gates import keeps_limits, quota_refusal
from orchestrator.planner.model import Amounts, Waiting, Workload
from orchestrator.planner.room import Pool, RoomFinder, Taken
from orchestrator.planner.rules import NOTHING
from orchestrator.planner.search import make_room
from orchestrator.planner.standing import Standing
from orchestrator.planner.victims import Court, Ruling


class ReclaimLaw:
    """Only what is borrowed, and only as far as the rules between projects let it go."""

    def __init__(self, court: Court) -> None:
        self._court = court

    def ruling(self, workload: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule by which the victim may be taken now."""
        return self._court.ruling(workload, asked, victim)

    def tolerates(self, decision: Decision, taken: Taken) -> bool:
        """Whether the cap on evictions is kept so far."""
        return decision.may_evict(victim.pods for victim, _ in taken)

    def accepts(self, decision: Decision, workload: Workload, taken: Taken) -> bool:
        """Whether nobody who lost is served worse than the side that took, and departments keep to their limits."""
        return (
            decision.may_evict(victim.pods for victim, _ in taken)
            and keeps_limits(decision.ledger, workload)
            and self._court.leaves_balance(workload, NOTHING, [victim for victim, _ in taken])
        )


def reclaim(decision: Decision) -> None:
    """For every workload that only lacks room, best founded first: evict what it may and must, or nothing."""
    court = Court(decision)
    law = ReclaimLaw(court)
    finders: dict[tuple[str, str | None], RoomFinder] = {}
    waiting = may_make_room(decision, (*ROOM_IS_MISSING, Waiting.PROJECT_LIMIT))
    hopeless: set[tuple[object, ...]] = set()
    for level in (Standing.GUARANTEED, Standing.FAIR):
        turns = decision.turns(waiting)
        while (workload := turns.pop()) is not None:
            again = None
            if _may_reclaim(decision, workload, level):
                model = decision.models.claim(workload, decision.next_chunk(workload))
                key = (workload.project, model if model in decision.tree.promised_models else None)
                finder = finders.get(key)
                if finder is None:
                    pool = Pool(court.candidates(workload, key[1]), court.claim)
                    finder = finders[key] = RoomFinder(decision, pool)
                if _reclaim_for(decision, workload, finder, law, hopeless) and decision.next_chunk(workload):
                    again = workload
            turns.settle(workload.project, again)


def _may_reclaim(decision: Decision, workload: Workload, level: Standing) -> bool:
    chunk = decision.next_chunk(workload)
    asked = chunk_amounts(chunk)
    if not any(asked[each] for each in decision.tree.resources):
        return False
    if decision.standing(workload, chunk, levels=1) is not level:
        return False
    return quota_refusal(decision.ledger, workload, asked) is None and not decision.kept_back(workload, chunk)


def _reclaim_for(
    decision: Decision,
    workload: Workload,
    finder: RoomFinder,
    law: ReclaimLaw,
    hopeless: set[tuple[object, ...]],
) -> bool:
    chunk = decision.next_chunk(workload)
    shape = (
        workload.project,
        workload.preemptible,
        workload.interactive,
        workload.topology,
        workload.groups,
        decision.standing_towards_holds(workload, chunk),
        tuple((pod.request, pod.constraints) for pod in chunk),
    )
    if shape in hopeless:
        return False
    checkpoint = decision.ledger.checkpoint()
    found = make_room(decision, workload, chunk, finder, law)
    if found is None:
        decision.ledger.rollback(checkpoint)
        hopeless.add(shape)
        return False
    taken, placed = found
    moved = move_elsewhere(decision, taken)
    carry_out(decision, workload, taken, placed)
    for name, places in moved.items():
        decision.promise(decision.workload(name), places)
    return True
