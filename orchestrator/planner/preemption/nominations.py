"""Nominations: room that was made for a pod is its own from decision to decision, until it is bound.

    decision 1: b is evicted for a ──> a is nominated to b's devices
    decision 2: b is still leaving ──> the nomination is on the ledger before anybody else is looked at
    decision 3: b is gone          ──> a is bound there

A decision begins with the nominations, so neither the successors of victims nor younger work can take the room. A
nomination ends when the pod is bound or gone, when its node cannot keep it, or when somebody with a better claim comes:
nominated pods are victims like running ones, by the same rules, but nobody is harmed by taking their room.

A pod that is moved is evicted with a nomination of its own; the pod that its controller makes next inherits it.
"""

from collections.abc import Collection, Iterable, Mapping

from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import Amounts, Pod, PodState, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placements import Placed, Placement
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

_MAX_ORDERS = 3


def restore_nominations(session: Session) -> None:
    """Put the nominations of earlier decisions on the ledger, the oldest workloads first; bind what is free by now.

    Those whose places are all intact come first: pods that need another place must not take theirs.
    """
    nominated = _keeping_all(session, _oldest_first(session))
    inherited: set[str] = set()
    for workload in nominated:
        _restore(session, workload, inherited, find_others=False)
    for workload in nominated:
        _keep_for_successors(session, workload, inherited)
    # A pod that lost its place looks for another one, which could be the place of somebody who is restored after it.
    for workload in nominated:
        _restore(session, workload, inherited, find_others=True)


def _oldest_first(session: Session) -> list[Workload]:
    """If not all of the room is left, the youngest promises go; the order is the same in every decision."""
    return sorted(session.nominated_workloads(), key=lambda workload: (workload.created_at_us, workload.id))


def _keeping_all(session: Session, oldest_first: list[Workload]) -> list[Workload]:
    """Of nominees with claims an order in which none takes what another one needs; as given if none is found.

    A nomination says which GPUs are kept, but not which parts of GPUs, network cards and so on: whoever comes first
    gets the first that do, and for another one they may be the only ones.
    """
    order = oldest_first if session.snapshot.dynamic.slices else []
    for _ in range(_MAX_ORDERS if len(order) > 1 else 0):
        lost = _lost_in(session, order)
        if not lost:
            return order
        order = sorted(order, key=lambda workload: workload.id not in lost)
    return oldest_first


def _lost_in(session: Session, order: Iterable[Workload]) -> set[str]:
    """The workloads, by id, that lose a place if they are restored in this order; the ledger stays as it is."""
    ledger = session.ledger
    checkpoint = ledger.checkpoint()
    lost: set[str] = set()
    for workload in order:
        before = ledger.checkpoint()
        for pod in workload.pods:
            if pod.nominated_node is None or pod.state is PodState.ALLOCATED or pod.stuck:
                continue
            where = session.placer.keep(workload, pod, Placement(pod.nominated_node, pod.nominated_devices))
            if where is None:
                lost.add(workload.id)
                ledger.rollback(before)
                break
            ledger.place(workload, pod, where)
    ledger.rollback(checkpoint)
    return lost


def start_nominated_elsewhere(session: Session, workload: Workload) -> bool:
    """Bind nominated pods where room is free now instead of waiting for what is being released.

    Parts of GPUs wait where they share one with others, rather than open another.
    """
    nominated = session.seats.placed(workload, SeatState.NOMINATED)
    checkpoint = session.ledger.checkpoint()
    opened = _count_unshared(session, nominated)
    session.ledger.unplace(workload, nominated)
    placed = session.place_all(workload, tuple(pod for pod, _ in nominated), only_now=True)
    if (
        placed is None
        or _count_unshared(session, placed) > opened
        or session.still_charged(workload, placed) is not None
    ):
        session.ledger.rollback(checkpoint)
        return False
    session.start_nominated(workload, placed)
    return True


def start_in_free_places(session: Session) -> None:
    """Bind the pods that this decision nominated to devices that no other pod has to leave any more.

    If they waited, their reason would name terminating pods, and none terminates there.
    """
    for workload in session.nominated_now():
        checkpoint = session.ledger.checkpoint()
        nominated = session.seats.placed(workload, SeatState.NOMINATED)
        session.ledger.unplace(workload, nominated)
        placed: Placed = []
        for pod, where in nominated:
            free = session.placer.keep(workload, pod, where)
            if free is None or free.promised:
                break
            session.ledger.place(workload, pod, free)
            placed.append((pod, free))
        if len(placed) == len(nominated) and session.still_charged(workload, placed) is None:
            session.start_nominated(workload, placed)
        else:
            session.ledger.rollback(checkpoint)


def _count_unshared(session: Session, placed: Placed) -> int:
    """How many devices these parts of GPUs, which are on the ledger, have to themselves once all releases are done."""
    count = 0
    for pod, where in placed:
        account = session.ledger.by_name[where.node]
        if pod.request.is_shared:
            share = account.share_milli(pod.request)
            count += sum(
                account.used_milli[device] - account.releasing_milli[device] == share
                for device in where.devices
            )
    return count


def inherited_places(
    workload: Workload, startable: Mapping[str, Pod], inherited: Collection[str]
) -> tuple[dict[str, Placement], dict[str, str]]:
    """Where pods are nominated, by pod id; pods that wait inherit from those of the same kind that leave.

    `startable` are pods that may start, by id, `inherited` leaving pods whose place is gone already. Also, by heir, the
    leaving pod that it inherits from.
    """
    places: dict[str, Placement] = {
        pod.id: Placement(pod.nominated_node, pod.nominated_devices)
        for pod in workload.pods
        if pod.nominated_node is not None and pod.state is PodState.PENDING
    }
    without = [pod for pod in startable.values() if pod.id not in places]
    heirs: dict[str, str] = {}
    for pod in workload.pods:
        if pod.nominated_node is None or pod.state is not PodState.RELEASING or pod.id in inherited:
            continue
        heir = next(
            (other for other in without if other.request == pod.request and other.sub_group == pod.sub_group),
            None,
        )
        if heir is not None:
            without.remove(heir)
            places[heir.id] = Placement(pod.nominated_node, pod.nominated_devices)
            heirs[heir.id] = pod.id
    return places, heirs


def _restore(session: Session, workload: Workload, inherited: set[str], *, find_others: bool) -> None:
    """Restore the workload's nominations chunk by chunk; with `find_others`, lost places are replaced by others.

    Adds to `inherited` the leaving pods whose place a waiting one has now.
    """
    chunks = session.queues.chunks(workload.id)
    startable = {pod.id: pod for chunk in chunks for pod in chunk}
    places, heirs = inherited_places(workload, startable, inherited)
    _exchange(session, workload, startable, places, heirs)
    for chunk in chunks:
        if any(pod.id in places for pod in chunk):
            placed = _places(session, workload, chunk, places, find_others=find_others)
            if placed is not None:
                session.restore(workload, chunk, placed)
                inherited.update(heirs[pod.id] for pod in chunk if pod.id in heirs)
                continue
        if len(chunk) > 1 or not session.queues.is_whole(workload):
            break  # the rest of it grows only once its gang is there


def _exchange(
    session: Session,
    workload: Workload,
    startable: Mapping[str, Pod],
    places: dict[str, Placement],
    heirs: dict[str, str],
) -> None:
    """Give the places that can still be had to those of alike pods that start first.

    Nothing of a workload starts without its first pods: their places would be lost with one that only they have.
    """
    alike: dict[object, list[Pod]] = {}
    for pod in startable.values():
        if pod.id in places:
            alike.setdefault((pod.request, pod.constraints, pod.sub_group), []).append(pod)
    for pods in alike.values():
        if len(pods) == 1:
            continue
        is_there = {pod.id: session.placer.keep(workload, pod, places[pod.id]) is not None for pod in pods}
        sources = sorted(pods, key=lambda pod: not is_there[pod.id])
        if sources == pods:
            continue
        had = [(places[pod.id], heirs.pop(pod.id, None)) for pod in sources]
        for pod, (place, leaving) in zip(pods, had, strict=True):
            places[pod.id] = place
            if leaving is not None:
                heirs[pod.id] = leaving


def _keep_for_successors(session: Session, workload: Workload, inherited: set[str]) -> None:
    """Keep the places of pods whose gang is not complete yet because others of it are still leaving."""
    if not any(pod.state is PodState.RELEASING and not pod.stuck for pod in workload.pods):
        return
    startable = {pod.id: pod for chunk in session.queues.chunks(workload.id) for pod in chunk}
    _, heirs = inherited_places(workload, startable, inherited)
    settled = {*startable, *inherited, *heirs.values()}
    for pod in workload.pods:
        if pod.nominated_node is None or pod.id in settled or pod.stuck:
            continue
        if pod.state is PodState.ALLOCATED or session.seats.of(pod) is not None:
            continue
        placement = session.placer.keep(workload, pod, Placement(pod.nominated_node, pod.nominated_devices))
        if placement is not None and session.violation(workload, (pod,)) is None:
            session.ledger.place(workload, pod, placement)
            session.nominate(workload, [(pod, placement)], SeatState.KEPT)


def _places(
    session: Session, workload: Workload, chunk: Chunk, places: Mapping[str, Placement], *, find_others: bool
) -> Placed | None:
    """The chunk on the ledger, nominated pods where they are nominated; None when it cannot be had as a whole."""
    needs_place = any(chunk_amounts(chunk)) or any(pod.claims for pod in chunk)
    if session.violation(workload, chunk) is not None or not needs_place:
        return None
    checkpoint = session.ledger.checkpoint()
    placed: Placed = []
    homeless: list[Pod] = []
    for pod in chunk:
        placement = session.placer.keep(workload, pod, places[pod.id]) if pod.id in places else None
        if placement is None:
            homeless.append(pod)
            continue
        session.ledger.place(workload, pod, placement)
        placed.append((pod, placement))
    bound_together = workload.topology is not None or workload.groups is not None
    # One pod elsewhere could break a topology: such a gang loses its nominations and is placed anew as a whole.
    may_find = find_others and not bound_together
    for pod in homeless:
        other: Placement | None = session.placer.find(workload, pod) if may_find else None
        if other is None:
            session.ledger.rollback(checkpoint)
            return None
        session.ledger.place(workload, pod, other)
        placed.append((pod, other))
    return placed


def held_behind(session: Session, nominee: Workload) -> Amounts:
    """What less urgent work of the project was given or promised while the nominee waits for its room.

    Nothing when it does not wait for one.
    """
    if not session.seats.has(nominee, SeatState.NOMINATED):
        return (0, 0, 0)
    order = workload_order(nominee)
    project = nominee.project
    pods = [
        pod
        for other in session.waiting_nominees()
        if other.project == project and workload_order(other) > order
        for pod, _ in session.seats.placed(other, SeatState.NOMINATED)
    ]
    for other in session.started(project):
        if workload_order(other) > order:
            pods += [pod for pod, _ in session.seats.placed(other, SeatState.NEW)]
    return chunk_amounts(pods)
