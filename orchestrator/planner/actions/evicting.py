"""What the actions that evict have in common: who lacks only room, and carrying out what was found."""

from collections.abc import Iterable, Iterator

from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.gates import refusal
from orchestrator.planner.model import PodState, Waiting, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.room import Taken
from orchestrator.planner.standing import Standing
from orchestrator.planner.victims import evictions_for

ROOM_IS_MISSING = (
    Waiting.CLUSTER_FULL,
    Waiting.FRAGMENTED,
    Waiting.AT_FAIR_SHARE,
    Waiting.RESERVED,
    Waiting.HELD,
)


def lacks_only(decision: Decision, codes: Iterable[Waiting]) -> list[Workload]:
    """Workloads that wait for one of these reasons and may have others evicted already."""
    wanted = tuple(codes)
    now_us = decision.snapshot.now_us
    return [
        each
        for each in decision.pending()
        if ((reason := decision.refusals.get(each.id)) is None or reason.code in wanted)
        and not (now_us and now_us < each.evicts_from_us)
    ]


def may_make_room(decision: Decision, codes: Iterable[Waiting]) -> list[Workload]:
    """Of those that lack only this, the ones for which it would not be in vain."""
    return [each for each in lacks_only(decision, codes) if decision.may_make_room(each)]


def shape_of(decision: Decision, workload: Workload, chunk: Chunk) -> tuple[object, ...]:
    """What decides whether the chunk finds room, apart from whose it is."""
    return (
        workload.interactive,
        workload.topology,
        workload.groups,
        decision.standing_towards_holds(workload, chunk),
        tuple((pod.request, pod.constraints, pod.sub_group) for pod in chunk),
    )


def better_claims(
    decision: Decision,
    workload: Workload,
    chunk: Chunk,
    suspended: Iterable[Workload],
) -> bool:
    """Whether work of another project with a better claim than the chunk's would fit if it were not for this project.

    That is, without all that the project starts in this decision, of which `suspended` is off the ledger already.
    Such work would take the room back at once. The ledger stays as it is.
    """
    ours = decision.standing(workload, chunk)
    if ours is Standing.GUARANTEED:
        return False
    checkpoint = decision.ledger.checkpoint()
    aside = {each.id for each in suspended}
    for each in decision.granted(workload.project):
        if each.id not in aside:
            decision.suspend(each)

    def goes_first(each: Workload, theirs: Chunk) -> bool:
        claim = decision.standing(each, theirs)
        return claim < ours or (claim is ours and decision.has_turn_before(each, theirs, workload, chunk))

    waiting = [(each, decision.next_chunk(each)) for each in _one_of_each_kind(decision)]
    for each, theirs in waiting:
        if each.project == workload.project or not theirs or not goes_first(each, theirs):
            continue
        if decision.refusal(each, theirs) is not None:
            continue
        if decision.place_all(each, theirs) is not None:
            decision.ledger.rollback(checkpoint)
            return True
    decision.ledger.rollback(checkpoint)
    return False


def _one_of_each_kind(decision: Decision) -> Iterator[Workload]:
    """Of the workloads that lack room and nothing else, the first of each kind in its project's queue."""
    if not decision.kinds:
        decision.kinds[()] = []
        for each in sorted(lacks_only(decision, ROOM_IS_MISSING), key=workload_order, reverse=True):
            chunk = tuple((pod.request, pod.constraints, pod.sub_group) for pod in decision.next_chunk(each))
            kind = (each.project, each.preemptible, each.interactive, each.topology, each.groups, chunk)
            decision.kinds.setdefault(kind, []).append(each.id)
    for names in decision.kinds.values():
        while names and not _lacks_room(decision, names[-1]):
            names.pop()
        if names:
            yield decision.workload(names[-1])


def _lacks_room(decision: Decision, name: str) -> bool:
    reason = decision.refusals.get(name)
    return (
        bool(decision.next_chunk(decision.workload(name)))
        and reason is not None
        and reason.code in ROOM_IS_MISSING
    )


def carry_out(decision: Decision, workload: Workload, taken: Taken, placed: Placed) -> None:
    """Make what is on the ledger part of the plan, and find new places for victims where there are any."""
    if _is_guaranteed(decision, workload, placed):
        decision.guaranteed.add(workload.id)
    decision.take(evictions_for(workload, taken))
    decision.grant(workload, placed, after_evictions=bool(taken))


def _is_guaranteed(decision: Decision, workload: Workload, placed: Placed) -> bool:
    """Whether the quotas of the project and its departments cover what is placed on the ledger."""
    checkpoint = decision.ledger.checkpoint()
    for pod, where in placed:
        decision.ledger.unplace(workload, pod, where.node, where.devices)
    claim = decision.standing(workload, tuple(pod for pod, _ in placed))
    decision.ledger.rollback(checkpoint)
    return claim is Standing.GUARANTEED


def move_elsewhere(decision: Decision, taken: Taken) -> dict[str, Placed]:
    """Places on the ledger for victims that fit somewhere else, by workload."""
    moved: dict[str, Placed] = {}
    victims = {victim.workload.id: victim for victim, _ in taken}
    evicted = {pod.id for victim, _ in taken for pod in victim.pods}
    for victim in sorted(victims.values(), key=lambda each: workload_order(each.workload)):
        workload = decision.workload(victim.workload.id)
        pods = tuple(pod for pod in workload.pods if pod.id in evicted and pod.state is PodState.ALLOCATED)
        core = all(pod.id in evicted for pod in workload.pods if pod.state is PodState.ALLOCATED)
        for chunk in [pods] if core else [(pod,) for pod in pods]:
            if refusal(decision.ledger, workload, chunk_amounts(chunk)) is not None:
                continue
            placed = decision.place_all(workload, chunk)
            if placed is not None:
                moved.setdefault(workload.id, []).extend(placed)
    return moved
