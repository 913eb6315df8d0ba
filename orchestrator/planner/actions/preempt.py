"""Inside one project, more urgent work takes the place of less urgent work that can be taken back."""

from collections.abc import Collection, Sequence

from orchestrator.planner.actions.evicting import (
    ROOM_IS_MISSING,
    better_claims,
    carry_out,
    may_make_room,
    move_elsewhere,
    shape_of,
)
from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.gates import keeps_limits, quota_refusal
from orchestrator.planner.model import Amounts, PendingReason, Waiting, Workload
from orchestrator.planner.room import Pool, RoomFinder, Taken
from orchestrator.planner.search import make_room
from orchestrator.planner.victims import Ruling, lower_priorities


class PriorityLaw:
    """Every candidate may go; the project's limits hold afterwards."""

    def ruling(self, workload: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule of priority."""
        del asked
        ours, theirs = workload.priority, victim.workload.priority
        return Ruling("priority", f"priority {ours} goes before {theirs} inside {workload.project}")

    def tolerates(self, decision: Decision, taken: Taken) -> bool:
        """Whether the cap on evictions is kept so far."""
        return decision.may_evict(victim.pods for victim, _ in taken)

    def accepts(self, decision: Decision, workload: Workload, taken: Taken) -> bool:
        """Whether the cap on evictions and the limits hold."""
        return decision.may_evict(victim.pods for victim, _ in taken) and keeps_limits(
            decision.ledger, workload
        )


def preempt(decision: Decision) -> None:
    """For every workload that lacks room or stands at its project's limit, in the order of turns."""
    waiting = may_make_room(decision, (*ROOM_IS_MISSING, Waiting.PROJECT_LIMIT))
    if not waiting:
        return
    law = PriorityLaw()
    hopeless: set[tuple[object, ...]] = set()
    lowest = _lowest_priorities(decision, {each.project for each in waiting})
    turns = decision.turns(
        each for each in waiting if lowest.get(each.project, each.priority) < each.priority
    )
    while (workload := turns.pop()) is not None:
        started = _preempt_for(decision, workload, law, hopeless)
        turns.settle(workload.project, workload if started and decision.next_chunk(workload) else None)


def _lowest_priorities(decision: Decision, projects: Collection[str]) -> dict[str, int]:
    """By project, the lowest priority of what could give way: preemptible work that runs or was just started."""
    lowest: dict[str, int] = {}
    started = (each for project in sorted(projects) for each in decision.granted(project))
    for workload in (*(each for each in decision.running() if each.preemptible), *started):
        if workload.project in projects:
            lowest[workload.project] = min(workload.priority, lowest.get(workload.project, workload.priority))
    return lowest


def _preempt_for(
    decision: Decision, workload: Workload, law: PriorityLaw, hopeless: set[tuple[object, ...]]
) -> bool:
    chunk = decision.next_chunk(workload)
    asked = chunk_amounts(chunk)
    if not chunk or quota_refusal(decision.ledger, workload, asked) or decision.kept_back(workload, chunk):
        return False
    shape = (workload.project, workload.priority, *shape_of(decision, workload, chunk))
    if shape in hopeless:
        return False
    victims = lower_priorities(decision, workload)
    granted = [each for each in decision.granted(workload.project) if each.priority < workload.priority]
    if not victims and not granted:
        return False
    checkpoint = decision.ledger.checkpoint()
    for each in granted:
        decision.suspend(each)
    finder = RoomFinder(decision, Pool({workload.project: victims}))
    found = make_room(decision, workload, chunk, finder, law)
    if found is None or (granted and _is_due_to_others(decision, workload, found[1], granted)):
        decision.ledger.rollback(checkpoint)
        hopeless.add(shape)
        return False
    for each in granted:
        decision.cancel(each)
        message = f"{workload.name} of the same project is more urgent and takes its place"
        decision.refuse(each, PendingReason(Waiting.CLUSTER_FULL, message))
    taken, placed = found
    moved = move_elsewhere(decision, taken)
    carry_out(decision, workload, taken, placed)
    for name, places in moved.items():
        decision.promise(decision.workload(name), places)
    for each in granted:
        _start_again(decision, each)
    return True


def _is_due_to_others(
    decision: Decision, workload: Workload, placed: Placed, suspended: Sequence[Workload]
) -> bool:
    """Whether other projects have a better claim to what less urgent work of this one gives back."""
    checkpoint = decision.ledger.checkpoint()
    for pod, where in placed:
        decision.ledger.unplace(workload, pod, where.node, where.devices)
    due = better_claims(decision, workload, tuple(pod for pod, _ in placed), suspended)
    decision.ledger.rollback(checkpoint)
    return due


def _start_again(decision: Decision, workload: Workload) -> None:
    """Give back what still fits beside the more urgent work."""
    while chunk := decision.next_chunk(workload):
        if decision.refusal(workload, chunk) is not None:
            return
        placed = decision.place_all(workload, chunk)
        if placed is None:
            return
        decision.grant(workload, placed)
