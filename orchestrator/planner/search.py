"""Evicting and placing on the ledger until a whole chunk fits, under a law that says who may go.

Nothing is decided here: the caller makes what is on the ledger part of the plan, or rolls back.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from orchestrator.planner.decision import Decision, Placed, largest_first
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.gates import limiting
from orchestrator.planner.model import Amounts, Pod, SubGroup, Workload
from orchestrator.planner.placement import Placement
from orchestrator.planner.room import RoomFinder, Taken, evict_lawfully
from orchestrator.planner.rules import minus
from orchestrator.planner.victims import Judge, Ruling

_PRUNED_SETS = 24
_WHOLE_SEARCH = 200
_OPTIONS = 64


class Law(Protocol):
    """Whom a workload may make give way."""

    def ruling(self, workload: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule by which the victim may go now; `asked` is what is not on the ledger yet."""
        ...

    def tolerates(self, decision: Decision, taken: Taken) -> bool:
        """Whether it is worth going on with these victims; the pod for which the last ones went is placed."""
        ...

    def accepts(self, decision: Decision, workload: Workload, taken: Taken) -> bool:
        """Whether the outcome on the ledger is lawful as a whole; may add to the ledger."""
        ...


def make_room(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> tuple[Taken, Placed] | None:
    """Evict and place on the ledger so that the whole chunk fits; None, with the ledger as it was, if nothing does."""
    checkpoint = decision.ledger.checkpoint()
    decision.budgets.in_the_way.clear()
    search = _search_whole if _is_bound_together(workload) else _search_each
    relief = _relieve_limits(decision, workload, chunk, finder, law)
    found = None if relief is None else search(decision, workload, chunk, finder, law)
    if relief and found is not None:
        found = ([*relief, *found[0]], found[1])
    if found is None or not law.accepts(decision, workload, found[0]):
        decision.ledger.rollback(checkpoint)
        decision.note_budgets(workload)
        return None
    if 1 < len(found[0]) <= _PRUNED_SETS:
        found = _prune(decision, workload, chunk, law=law, found=found, checkpoint=checkpoint)
    return found


def _relieve_limits(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> Taken | None:
    """Victims under the same limit, most dispensable first, until it leaves room for the chunk."""
    asked = chunk_amounts(chunk)
    taken: Taken = []
    full = limiting(decision.ledger, workload, asked)
    for victim in finder.in_order() if full else ():
        if full is None:
            break
        if full[0] not in decision.tree.lineage[victim.workload.project]:
            continue
        taken += evict_lawfully(decision, [victim], _judge(law, workload, asked)) or []
        full = limiting(decision.ledger, workload, asked)
    return taken if full is None else None


def _search_each(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> tuple[Taken, Placed] | None:
    """Pod by pod: what is free first, else the cheapest room on a node."""
    taken: Taken = []
    placed: Placed = []
    missing = chunk_amounts(chunk)
    for pod in largest_first(chunk):
        placement = decision.placer.find(workload, pod)
        if placement is None:
            judge = _judge(law, workload, missing)
            found = _room_for(decision, workload, pod, judge=judge, finder=finder, law=law, taken=taken)
            if found is None:
                return None
            taken, placement = found
        decision.ledger.place(workload, pod, placement.node, placement.devices)
        placed.append((pod, placement))
        missing = minus(missing, pod.request.amounts)
    return taken, placed


def _room_for(
    decision: Decision,
    workload: Workload,
    pod: Pod,
    *,
    judge: Judge,
    finder: RoomFinder,
    law: Law,
    taken: Taken,
) -> tuple[Taken, Placement] | None:
    """Evict on the ledger the cheapest victims that the law tolerates; all that were taken so far, and the place."""
    for option in islice(finder.options(workload, pod, judge), _OPTIONS):
        checkpoint = decision.ledger.checkpoint()
        evicted = evict_lawfully(decision, option, judge)
        placement = None if evicted is None else decision.placer.find(workload, pod)
        if evicted is not None and placement is not None:
            mark = decision.ledger.checkpoint()
            decision.ledger.place(workload, pod, placement.node, placement.devices)
            tolerated = law.tolerates(decision, [*taken, *evicted])
            decision.ledger.rollback(mark)
            if tolerated:
                return [*taken, *evicted], placement
        decision.ledger.rollback(checkpoint)
    return None


def _search_whole(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> tuple[Taken, Placed] | None:
    """Victims one after the other, most dispensable first, until the chunk fits where its topology wants it."""
    judge = _judge(law, workload, chunk_amounts(chunk))
    taken: Taken = []
    for victim in finder.in_order():
        evicted = evict_lawfully(decision, [victim], judge)
        if evicted is None:
            continue
        taken += evicted
        placed = decision.place_all(workload, chunk)
        if placed is not None:
            return taken, placed
        if len(taken) >= _WHOLE_SEARCH:
            break
    return None


def _prune(
    decision: Decision,
    workload: Workload,
    chunk: Chunk,
    *,
    law: Law,
    found: tuple[Taken, Placed],
    checkpoint: int,
) -> tuple[Taken, Placed]:
    """The same outcome with every victim spared that is not needed after all."""
    judge = _judge(law, workload, chunk_amounts(chunk))
    kept = [victim for victim, _ in found[0]]

    def attempt(victims: Sequence[Victim]) -> tuple[Taken, Placed] | None:
        decision.ledger.rollback(checkpoint)
        taken = evict_lawfully(decision, victims, judge)
        placed = None if taken is None else decision.place_all(workload, chunk)
        if taken is None or placed is None or not law.accepts(decision, workload, taken):
            return None
        return taken, placed

    best = found
    for victim in reversed(list(kept)):
        fewer = [each for each in kept if each is not victim]
        if fewer and (smaller := attempt(fewer)) is not None:
            kept, best = fewer, smaller
    again = attempt(kept)
    if again is not None:
        return again
    decision.ledger.rollback(checkpoint)
    evict_lawfully(decision, [victim for victim, _ in best[0]], judge)
    for pod, placement in best[1]:
        decision.ledger.place(workload, pod, placement.node, placement.devices)
    law.accepts(decision, workload, best[0])
    return best


def _judge(law: Law, workload: Workload, missing: Amounts) -> Judge:
    return lambda victim: law.ruling(workload, missing, victim)


def _is_bound_together(workload: Workload) -> bool:
    return workload.topology is not None or (workload.groups is not None and _has_topology(workload.groups))


def _has_topology(group: SubGroup) -> bool:
    return group.topology is not None or any(_has_topology(child) for child in group.children)
