"""Restores nominations: GPUs that stay reserved for a pod over several decisions, until the pod is bound.

    decision 1: b is evicted for a   ──> a is nominated to the devices of b
    decision 2: b is terminating     ──> the nomination of a is on the ledger before the other steps
    decision 3: b has terminated     ──> a is bound to these devices

A decision begins with the nominations, so the replacement pods of victims and younger workloads cannot take these
GPUs.

A nomination ends when the pod is bound or deleted, or when its node cannot take the pod. It also ends when a more
entitled workload needs the GPUs. Nominated pods are victims by the same rules as running pods, but ending a
nomination evicts no pod.

A migrated pod is evicted with a nomination. The replacement pod that its controller creates inherits the nomination.
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
    """Put the nominations of earlier decisions on the ledger, and bind pods whose GPUs are free now.

    Older workloads are restored before younger ones. Pods whose nominated placement is intact come first. Otherwise
    pods that need another placement could take their GPUs.
    """
    nominated = _keeping_all(session, _oldest_first(session))
    inherited: set[str] = set()
    for workload in nominated:
        _restore(session, workload, inherited, find_others=False)
    for workload in nominated:
        _keep_for_successors(session, workload, inherited)
    # A pod that lost its placement gets another placement. It must not take the placement of a workload that
    # is restored later.
    for workload in nominated:
        _restore(session, workload, inherited, find_others=True)


def _oldest_first(session: Session) -> list[Workload]:
    """Return the nominated workloads, oldest first. If GPUs are missing, the youngest nominations are lost.

    The order is the same in every decision.
    """
    return sorted(session.nominated_workloads(), key=lambda workload: (workload.created_at_us, workload.id))


def _keeping_all(session: Session, oldest_first: list[Workload]) -> list[Workload]:
    """Return an order of nominated workloads in which each keeps its nomination. If no such order is found, return the
    given order.

    Only clusters with ResourceClaims need the search. A nomination names the GPUs, but not the other devices (for
    example network cards) of the claims. The workload that is restored first gets the first suitable device, which can
    be the only one for another workload. A workload that loses its placement in one trial comes first in the next
    trial.
    """
    order = oldest_first if session.snapshot.dynamic.slices else []
    for _ in range(_MAX_ORDERS if len(order) > 1 else 0):
        lost = _lost_in(session, order)
        if not lost:
            return order
        order = sorted(order, key=lambda workload: workload.id not in lost)
    return oldest_first


def _lost_in(session: Session, order: Iterable[Workload]) -> set[str]:
    """Return the ids of the workloads that lose a placement in this order of restoring. The ledger stays unchanged."""
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
    """Bind the nominated pods of a workload to free GPUs, so that they need not wait for terminating pods.

    Return whether they were bound. GPU fractions keep waiting if binding them now would open another whole device.

    Example: a pod of half a GPU is nominated to a device that it shares. A whole GPU is free now. The pod keeps
    waiting.
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


def start_on_free_devices(session: Session) -> None:
    """Bind the pods that this decision nominated to devices on which no pod terminates any more.

    Otherwise their pending reason would name terminating pods, although no pod terminates there.
    """
    for workload in session.nominated_now():
        checkpoint = session.ledger.checkpoint()
        nominated = session.seats.placed(workload, SeatState.NOMINATED)
        session.ledger.unplace(workload, nominated)
        placed: Placed = []
        for pod, where in nominated:
            free = session.placer.keep(workload, pod, where)
            if free is None or free.waits:
                break
            session.ledger.place(workload, pod, free)
            placed.append((pod, free))
        if len(placed) == len(nominated) and session.still_charged(workload, placed) is None:
            session.start_nominated(workload, placed)
        else:
            session.ledger.rollback(checkpoint)


def _count_unshared(session: Session, placed: Placed) -> int:
    """Return the number of devices that no other pod shares with these fractions after terminating pods have ended."""
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


def inherited_placements(
    workload: Workload, startable: Mapping[str, Pod], inherited: Collection[str]
) -> tuple[dict[str, Placement], dict[str, str]]:
    """Return the nominated placements by pod id.

    Also return, by the id of each heir, the terminating pod from which it inherits.

    A pending pod without a nomination (the heir) inherits the nomination of a terminating pod with the same request and
    sub-group. `startable` has the pods that may start, by id. `inherited` has the ids of terminating pods that have an
    heir already.
    """
    placements: dict[str, Placement] = {
        pod.id: Placement(pod.nominated_node, pod.nominated_devices)
        for pod in workload.pods
        if pod.nominated_node is not None and pod.state is PodState.PENDING
    }
    without = [pod for pod in startable.values() if pod.id not in placements]
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
            placements[heir.id] = Placement(pod.nominated_node, pod.nominated_devices)
            heirs[heir.id] = pod.id
    return placements, heirs


def _restore(session: Session, workload: Workload, inherited: set[str], *, find_others: bool) -> None:
    """Restore the nominations of a workload chunk by chunk. With `find_others`, replace lost placements by other
    ones.

    Add to `inherited` the ids of terminating pods whose nomination a pending pod inherited.
    """
    chunks = session.queues.chunks(workload.id)
    startable = {pod.id: pod for chunk in chunks for pod in chunk}
    placements, heirs = inherited_placements(workload, startable, inherited)
    _exchange(session, workload, startable, placements, heirs)
    for chunk in chunks:
        if any(pod.id in placements for pod in chunk):
            placed = place_at(session, workload, chunk, placements, find_others=find_others)
            if placed is not None:
                session.restore(workload, chunk, placed)
                inherited.update(heirs[pod.id] for pod in chunk if pod.id in heirs)
                continue
        if len(chunk) > 1 or not session.queues.is_whole(workload):
            break  # the elastic pods start only after the gang is complete


def _exchange(
    session: Session,
    workload: Workload,
    startable: Mapping[str, Pod],
    placements: dict[str, Placement],
    heirs: dict[str, str],
) -> None:
    """Among pods of the same kind, give usable placements to the pods that start first.

    A workload does not start without its first chunk. If a pod of that chunk lost its placement and a later pod did
    not, they exchange placements. Otherwise the whole gang would lose its nominations. Changes `placements` and
    `heirs`.
    """
    alike: dict[object, list[Pod]] = {}
    for pod in startable.values():
        if pod.id in placements:
            alike.setdefault((pod.request, pod.constraints, pod.sub_group), []).append(pod)
    for pods in alike.values():
        if len(pods) == 1:
            continue
        is_there = {
            pod.id: session.placer.keep(workload, pod, placements[pod.id]) is not None for pod in pods
        }
        sources = sorted(pods, key=lambda pod: not is_there[pod.id])
        if sources == pods:
            continue
        had = [(placements[pod.id], heirs.pop(pod.id, None)) for pod in sources]
        for pod, (place, terminating) in zip(pods, had, strict=True):
            placements[pod.id] = place
            if terminating is not None:
                heirs[pod.id] = terminating


def _keep_for_successors(session: Session, workload: Workload, inherited: set[str]) -> None:
    """Keep the nominations of pods in an incomplete gang whose other pods are still terminating."""
    if not any(pod.state is PodState.RELEASING and not pod.stuck for pod in workload.pods):
        return
    startable = {pod.id: pod for chunk in session.queues.chunks(workload.id) for pod in chunk}
    _, heirs = inherited_placements(workload, startable, inherited)
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


def place_at(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    placements: Mapping[str, Placement],
    *,
    find_others: bool = False,
) -> Placed | None:
    """Place the chunk on the ledger, each pod at its placement in `placements`. Return None if not all pods fit.

    With `find_others`, pods without a usable placement get another one.
    """
    needs_place = any(chunk_amounts(chunk)) or any(pod.claims for pod in chunk)
    if session.violation(workload, chunk) is not None or not needs_place:
        return None
    checkpoint = session.ledger.checkpoint()
    placed: Placed = []
    homeless: list[Pod] = []
    for pod in chunk:
        placement = session.placer.keep(workload, pod, placements[pod.id]) if pod.id in placements else None
        if placement is None:
            homeless.append(pod)
            continue
        session.ledger.place(workload, pod, placement)
        placed.append((pod, placement))
    bound_together = workload.topology is not None or workload.groups is not None
    # A single pod on another node could break the topology rule of its gang. So such a gang loses its
    # nominations and is placed again as a whole.
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
    """Return the amounts that less urgent workloads of the project got while the nominee waits for its GPUs.

    The sum has the nominations of these workloads and the pods that this decision started. If `nominee` has no
    nomination, the sum is zero.
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
