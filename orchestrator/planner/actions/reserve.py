"""Reserve nodes for large work that has starved, let other work use them meanwhile, and start it when it fits.

Without this a gang waits for ever while single GPUs come free one by one and go to single jobs. After
`reservation_after_seconds` room is kept for it on the nodes where it will fit first. What is kept is lent to work that
ends in time by its own declaration, or that can be evicted for it: borrowed work of other projects, and preemptible
work of its own project that is behind it in the queue.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from orchestrator.planner.actions.evicting import ROOM_IS_MISSING, carry_out, may_make_room, move_elsewhere
from orchestrator.planner.actions.reclaim import ReclaimLaw
from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import Chunk, chunk_amounts, chunk_gpu_milli, give_up_chunks
from orchestrator.planner.gates import refusal
from orchestrator.planner.holds import Hold, Kept
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Pod, PodState, Waiting, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.quota import preempt_min_runtime
from orchestrator.planner.room import Pool, RoomFinder
from orchestrator.planner.search import make_room
from orchestrator.planner.standing import Standing
from orchestrator.planner.victims import Court, Ruling, dispensable, is_protected

RULE = "reservation"
_SECOND_US = 1_000_000
_MOST_HOLDS = 4
_MOST_TRIES = 16

Ending = tuple[tuple[bool, int, int, int, int], Workload, Pod]
"""A running pod by when it will be gone: the known ends first, then node by node."""


def starving_since_us(decision: Decision, workload: Workload) -> int:
    """When the workload had waited for so long that room is kept for it; 0 when that never happens."""
    after = decision.snapshot.settings.reservation_after_seconds
    if after is None or not decision.snapshot.now_us:
        return 0
    return (workload.waiting_since_us or workload.created_at_us) + after * _SECOND_US


def reserve(decision: Decision) -> None:
    """Keep room for the first workloads, in the order of turns, that starve and are entitled to what they ask for."""
    if not starving_since_us(decision, _NOBODY):
        return
    starving = [each for each in decision.pending() if _is_starving(decision, each)]
    turns = decision.turns(starving)
    tries = 0
    endings: list[Ending] | None = None
    while tries < _MOST_TRIES and (workload := turns.pop()) is not None:
        chunk = decision.next_chunk(workload)
        standing, limited = _claim(decision, workload, chunk)
        if standing is not None:
            tries += 1
            endings = _endings(decision) if endings is None else endings
            hold = _earliest(decision, workload, chunk, standing, endings)
            if hold is not None and limited:
                hold = replace(hold, nodes={}, starts_us=0, missing_milli=0)
            if hold is not None:
                decision.holds.add(hold)
                if sum(1 for _ in decision.holds) >= _MOST_HOLDS:
                    return
        turns.settle(workload.project)


def start_reserved(decision: Decision) -> None:
    """Start what room is kept for, when the only thing in its way is work that uses its nodes on loan."""
    reasons = (*ROOM_IS_MISSING, Waiting.PROJECT_LIMIT)
    waiting = may_make_room(decision, reasons) if decision.holds else []
    for hold in [each for each in decision.holds if any(each.workload.id == one.id for one in waiting)]:
        workload = decision.workload(hold.workload.id)
        chunk = decision.next_chunk(workload)
        court = Court(decision)
        model = decision.models.claim(workload, chunk)
        sides = court.candidates(workload, model if model in decision.tree.promised_models else None)
        own = list(_lent_inside(decision, workload))
        if not own:
            continue  # whatever others borrow is taken back by the rules of every day
        finder = RoomFinder(decision, Pool(sides | {workload.project: own}, court.claim))
        found = make_room(decision, workload, chunk, finder, ReservationLaw(court))
        if found is None:
            continue
        moved = move_elsewhere(decision, found[0])
        carry_out(decision, workload, *found)
        for name, places in moved.items():
            decision.promise(decision.workload(name), places)


class ReservationLaw(ReclaimLaw):
    """Inside the project, whoever was let in ahead of the workload; of others what may be reclaimed."""

    def ruling(self, workload: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule by which the victim may be taken now."""
        if victim.workload.project == workload.project:
            return Ruling(
                RULE, f"it was let in ahead of {workload.name}, which waits longer, until that fits"
            )
        return super().ruling(workload, asked, victim)


def _claim(decision: Decision, workload: Workload, chunk: Chunk) -> tuple[Standing | None, bool]:
    """How well founded the claim is, None when the project is not entitled to so much, or could not hold it.

    What the project runs behind the workload's back does not count against it. Also whether some of that, which
    cannot be taken back, has to end first because the project's limits have no room for both: no nodes are kept then.
    """
    checkpoint = decision.ledger.checkpoint()
    behind = [
        each
        for each in decision.running()
        if each.project == workload.project and workload_order(each) > workload_order(workload)
    ]
    _set_aside(decision, (each for each in behind if each.preemptible))
    asked = chunk_amounts(chunk)
    limited = refusal(decision.ledger, workload, asked) is not None
    _set_aside(decision, behind)
    refused = refusal(decision.ledger, workload, asked)
    claim = decision.standing(workload, chunk)
    decision.ledger.rollback(checkpoint)
    return (None if refused is not None or claim is Standing.SURPLUS else claim), limited


def _set_aside(decision: Decision, workloads: Iterable[Workload]) -> None:
    for each in workloads:
        for pod in each.pods:
            if pod.state is PodState.ALLOCATED:
                decision.ledger.evict(each, pod)


def _is_starving(decision: Decision, workload: Workload) -> bool:
    chunk = decision.next_chunk(workload)
    large = len(chunk) > 1 or chunk_gpu_milli(chunk) > DEVICE_MILLI
    return (
        large
        and chunk_gpu_milli(chunk) > 0
        and not decision.is_whole(workload)
        and decision.snapshot.now_us >= starving_since_us(decision, workload)
    )


def _endings(decision: Decision) -> list[Ending]:
    """All running pods with GPUs, in the order in which they will probably be gone.

    Of those that do not say when they end, the ones on the node that has fewest of them come first: a node on which
    only little is to be returned stays the one that is waited for.
    """
    open_ended: dict[str, int] = {}
    running = [
        (workload, pod)
        for workload in decision.running()
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED and pod.request.gpu_milli and pod.node in decision.ledger.by_name
    ]
    for workload, pod in running:
        if not pod.ends_by_us:
            weight = 1 if workload.preemptible else 1 << 20
            open_ended[pod.node or ""] = open_ended.get(pod.node or "", 0) + weight * pod.request.gpu_milli
    endings: list[Ending] = []
    for index, (workload, pod) in enumerate(running):
        position = decision.ledger.by_name[pod.node or ""].position
        key = (
            (False, pod.ends_by_us, 0, position, index)
            if pod.ends_by_us
            else (True, open_ended[pod.node or ""], position, 0, index)
        )
        endings.append((key, workload, pod))
    return sorted(endings, key=lambda each: each[0])


def _earliest(
    decision: Decision, workload: Workload, chunk: Chunk, standing: Standing, endings: list[Ending]
) -> Hold | None:
    """The hold on the nodes where the chunk fits after the fewest endings; None when it fits nowhere even then."""
    ledger = decision.ledger
    checkpoint = ledger.checkpoint()

    def attempt(count: int) -> Placed | None:
        ledger.rollback(checkpoint)
        for _, owner, pod in endings[:count]:
            ledger.evict(owner, pod)
        return decision.place_all(workload, chunk)

    low, high = _fewest(decision, chunk, endings) - 1, None
    for count in _steps(low + 1, len(endings)):
        if attempt(count) is not None:
            high = count
            break
        low = count
    if high is None:
        ledger.rollback(checkpoint)
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attempt(middle) is not None else (middle, high)
    placed = attempt(high) or []
    ledger.rollback(checkpoint)
    nodes: dict[int, Kept] = {}
    for pod, where in placed:
        position = ledger.by_name[where.node].position
        nodes[position] = nodes.get(position, Kept()).plus(pod)
    awaited = [
        (key, pod) for key, _, pod in endings[:high] if ledger.by_name[pod.node or ""].position in nodes
    ]
    idle = sum(min(kept.devices, ledger.nodes[each].idle_devices) for each, kept in nodes.items())
    now_us = decision.snapshot.now_us
    is_open = any(key[0] for key, _ in awaited)
    return Hold(
        workload=workload,
        standing=standing,
        nodes=nodes,
        starts_us=0 if is_open else max([pod.ends_by_us for _, pod in awaited], default=now_us),
        missing_milli=max(0, sum(kept.devices for kept in nodes.values()) - idle) * DEVICE_MILLI,
        waited_us=now_us - (workload.waiting_since_us or workload.created_at_us),
        asked=chunk_amounts(chunk),
        yielding=_yielding(decision, workload),
    )


def _fewest(decision: Decision, chunk: Chunk, endings: list[Ending]) -> int:
    """How many pods must end at least, by counting what is free alone."""
    missing = chunk_gpu_milli(chunk) - sum(each.later_milli for each in decision.ledger.nodes)
    for count, (_, _, pod) in enumerate(endings):
        if missing <= 0:
            return count
        missing -= pod.request.gpu_milli
    return len(endings)


def _steps(first: int, most: int) -> Iterator[int]:
    """`first`, then ever further beyond it, and `most`."""
    step, count = 1, first
    while count < most:
        yield count
        count, step = first + step, step * 2
    yield most


def _yielding(decision: Decision, workload: Workload) -> Amounts:
    """What of its project is evicted for the workload as soon as that helps."""
    pods = {pod.id: pod for each in _lent_inside(decision, workload) for pod in each.pods}
    return chunk_amounts(pods.values())


def _lent_inside(decision: Decision, workload: Workload) -> Iterator[Victim]:
    """What the project started behind the workload's back since it starves, most dispensable first."""
    since_us = starving_since_us(decision, workload)
    seconds = decision.tree.nearest(workload.project, preempt_min_runtime)
    found: list[Victim] = []
    for each in decision.running():
        if (
            each.project != workload.project
            or not each.preemptible
            or each.started_at_us < since_us
            or workload_order(each) < workload_order(workload)
            or is_protected(each, seconds, decision.snapshot.now_us)
        ):
            continue
        *surplus, everything = give_up_chunks(each)
        found += [Victim(each, part, is_core=False) for part in surplus]
        found.append(Victim(each, everything))
    yield from sorted(found, key=dispensable)


_NOBODY = Workload("", "", "", 0, preemptible=True, created_at_us=0, pods=())
