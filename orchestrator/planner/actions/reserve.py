"""Reserve nodes for large workloads that have been pending for long, backfill them, and start the large workload.

Without a reservation, a gang of 8 pods never starts: whenever a GPU becomes free, a small job takes it. After
`reservation_after_seconds` the scheduler reserves the nodes on which the gang will fit first.

Three kinds of workloads can be backfilled on reserved nodes:

- workloads with a declared maximum runtime that ends in time
- borrowed workloads of other projects, which the gang can reclaim
- preemptible workloads of the gang's project that are behind the gang in the queue
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota import preempt_min_runtime
from orchestrator.planner.accounting.quota_checks import quota_violation, violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.evicting import carry_out, nominate_victims, waiting_for
from orchestrator.planner.gangs import Chunk, chunk_amounts, chunk_gpu_milli, give_up_chunks
from orchestrator.planner.model import (
    CAPACITY_REASONS,
    DEVICE_MILLI,
    SECOND_US,
    Amounts,
    Pod,
    PodState,
    Waiting,
    Workload,
)
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placement.reservations import Reservation, ReservedCapacity
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.candidates import Candidate, Candidates
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.rescheduling import move_elsewhere
from orchestrator.planner.preemption.search import preempt_for
from orchestrator.planner.preemption.victim_selection import VictimSelector
from orchestrator.planner.preemption.victims import (
    EvictionReason,
    gpu_ns_since_start,
    is_protected,
    victim_order,
)
from orchestrator.planner.session import Session

RULE = "reservation"
_MAX_RESERVATIONS = 4
_MAX_TRIES = 16

Ending = tuple[tuple[bool, int, int, int, str, str], Workload, Pod]
"""A sort key, a workload, and a running pod of it. Pods with a known end come first, in the order of their ends.
Then come the other pods, node by node.
"""


def starving_since_us(session: Session, workload: Workload) -> int:
    """Return the time from which nodes are reserved for the workload; 0 if reservations are off or the time is
    unknown.
    """
    after = session.snapshot.settings.reservation_after_seconds
    if after is None or not session.snapshot.now_us:
        return 0
    return (workload.waiting_since_us or workload.created_at_us) + after * SECOND_US


def reserve(session: Session) -> None:
    """Reserve nodes for at most four entitled workloads that have been pending for long enough, in queue order."""
    if not starving_since_us(session, _NO_WORKLOAD):
        return
    starving = [workload for workload in session.pending() if _is_starving(session, workload)]
    queue = session.priority_queue(starving)
    tries = 0
    endings: list[Ending] | None = None
    while tries < _MAX_TRIES and (workload := queue.pop()) is not None:
        chunk = session.next_chunk(workload)
        tier, limited = _claim(session, workload, chunk)
        if tier is not None:
            tries += 1
            endings = _endings(session) if endings is None else endings
            reservation = _earliest(session, workload, chunk, tier, endings)
            if reservation is not None and limited:
                reservation = replace(reservation, nodes={}, starts_us=0)
            if reservation is not None:
                session.reservations.add(reservation)
                if sum(1 for _ in session.reservations) >= _MAX_RESERVATIONS:
                    return
        queue.settle(workload.project)


def start_reserved(session: Session) -> None:
    """Start each workload with a reservation, if it fits after the eviction of backfilled pods of its own project.

    The eviction policy is `ReservationPolicy`, so pods of other projects can be evicted too.
    """
    reasons = (*CAPACITY_REASONS, Waiting.PROJECT_LIMIT)
    waiting = waiting_for(session, reasons) if session.reservations else []
    for reservation in [
        reservation
        for reservation in session.reservations
        if any(reservation.workload.id == one.id for one in waiting)
    ]:
        workload = session.workload(reservation.workload.id)
        chunk = session.next_chunk(workload)
        backfilled = {victim.workload.id for victim in _backfilled_inside(session, workload)}
        if not backfilled:
            continue  # the usual rules of reclaim apply to pods of other projects
        if quota_violation(session.ledger, workload, chunk_amounts(chunk)) is not None:
            continue  # backfilled pods are preemptible, so their eviction frees nothing of this quota
        selector = VictimSelector(session, session.once(Candidates), ReservationPolicy(session, backfilled))
        outcome = preempt_for(session, workload, chunk, selector)
        if outcome is None:
            continue
        moved = move_elsewhere(session, outcome[0])
        carry_out(session, workload, *outcome)
        nominate_victims(session, workload, outcome[0], moved)


class ReservationPolicy(ReclaimPolicy):
    """The eviction policy for a reserved workload.

    Candidates are the backfilled workloads of its own project, and pods of other projects by the rules of reclaim.

    `backfilled` has the ids of the backfilled workloads of the project.
    """

    def __init__(self, session: Session, backfilled: Collection[str]) -> None:
        super().__init__(session)
        self._backfilled = backfilled

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Return a key of this workload alone, because its candidates differ from those of all other workloads."""
        return ("reservation", workload.id)

    def may_go(self, workload: Workload, candidate: Candidate) -> bool:
        """Return whether the candidate is backfilled, or can be reclaimed."""
        if candidate.project == workload.project:
            return candidate.workload.id in self._backfilled and not candidate.is_move
        return super().may_go(workload, candidate)

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Return true if no pod of `project` may be evicted for the workload.

        For the workload's own project this is always false, because its backfilled pods may be evicted.
        """
        return project != workload.project and super().is_closed(
            workload, requested, project, frees_gpus=frees_gpus
        )

    def falls_below_quota(self, workload: Workload, candidates: Sequence[Candidate]) -> bool:
        """Return whether another project would fall below its quota. The workload's own project keeps the GPUs of
        its backfilled pods, so it does not count.
        """
        others = [candidate for candidate in candidates if candidate.project != workload.project]
        return bool(others) and super().falls_below_quota(workload, others)

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Return whether the victim is backfilled, or borrowed."""
        return victim.workload.project == workload.project or super().is_borrowed(workload, victim)

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """Return the rule by which the victim may be evicted now, or None."""
        if victim.workload.project == workload.project:
            return EvictionReason(RULE, f"it was backfilled before {workload.name}, which fits now")
        return super().eviction_reason(workload, requested, victim)


def _claim(session: Session, workload: Workload, chunk: Chunk) -> tuple[EntitlementTier | None, bool]:
    """Return the tier of the chunk, and whether a limit of the project delays it.

    The tier is None if the project is not entitled to the request, or if a limit or quota excludes the chunk. For both,
    workloads of the project that are behind this workload in the queue do not count.

    The second value is true if running non-preemptible workloads behind this workload in the queue use up a limit or
    quota that it needs. These must end first, so the scheduler reserves no nodes yet.
    """
    checkpoint = session.ledger.checkpoint()
    behind = [
        other
        for other in session.running()
        if other.project == workload.project and workload_order(other) > workload_order(workload)
    ]
    _evict_on_ledger(session, (other for other in behind if other.preemptible))
    requested = chunk_amounts(chunk)
    limited = violation(session.ledger, workload, requested) is not None
    _evict_on_ledger(session, behind)
    violation_found = violation(session.ledger, workload, requested)
    claim = session.tier(workload, chunk)
    session.ledger.rollback(checkpoint)
    return (None if violation_found is not None or claim is EntitlementTier.OVER_SHARE else claim), limited


def _evict_on_ledger(session: Session, workloads: Iterable[Workload]) -> None:
    for workload in workloads:
        for pod in workload.pods:
            if pod.state is PodState.ALLOCATED:
                session.ledger.evict(workload, pod)


def _is_starving(session: Session, workload: Workload) -> bool:
    chunk = session.next_chunk(workload)
    large = len(chunk) > 1 or chunk_gpu_milli(chunk) > DEVICE_MILLI
    return (
        large
        and chunk_gpu_milli(chunk) > 0
        and not session.queues.is_whole(workload)
        and session.snapshot.now_us >= starving_since_us(session, workload)
    )


def _endings(session: Session) -> list[Ending]:
    """Return all running pods with GPUs, in the order in which they are expected to end.

    Pods without a declared end come last, grouped by node: the node with the fewest GPUs of such pods first. So the
    reservation is on the nodes on which the fewest pods must end.
    """
    open_ended: dict[str, int] = {}
    running = [
        (workload, pod)
        for workload in session.running()
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED and pod.request.gpu_milli and pod.node in session.ledger.by_name
    ]
    for workload, pod in running:
        if not pod.ends_by_us:
            weight = 1 if workload.preemptible else 1 << 20
            open_ended[pod.node or ""] = open_ended.get(pod.node or "", 0) + weight * pod.request.gpu_milli
    endings: list[Ending] = []
    for workload, pod in running:
        position = session.ledger.by_name[pod.node or ""].position
        key = (
            (False, pod.ends_by_us, 0, position, workload.id, pod.id)
            if pod.ends_by_us
            else (True, open_ended[pod.node or ""], position, 0, workload.id, pod.id)
        )
        endings.append((key, workload, pod))
    return sorted(endings, key=lambda ending: ending[0])


def _earliest(
    session: Session, workload: Workload, chunk: Chunk, tier: EntitlementTier, endings: list[Ending]
) -> Reservation | None:
    """Return the reservation on the nodes on which the chunk fits after the fewest endings. None if it never fits."""
    ledger = session.ledger
    checkpoint = ledger.checkpoint()

    def attempt(count: int) -> Placed | None:
        ledger.rollback(checkpoint)
        for _, owner, pod in endings[:count]:
            ledger.evict(owner, pod)
        return session.place_all(workload, chunk)

    # Each attempt places the whole chunk. To make few attempts, the count first grows in steps that double,
    # then a binary search finds the smallest count.
    low, high = _fewest(session, chunk, endings) - 1, None
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
    nodes: dict[int, ReservedCapacity] = {}
    for pod, where in placed:
        position = ledger.by_name[where.node].position
        nodes[position] = nodes.get(position, ReservedCapacity()).plus(pod)
    awaited = [
        (key, pod) for key, _, pod in endings[:high] if ledger.by_name[pod.node or ""].position in nodes
    ]
    now_us = session.snapshot.now_us
    is_open = any(key[0] for key, _ in awaited)
    return Reservation(
        workload=workload,
        tier=tier,
        nodes=nodes,
        starts_us=0 if is_open else max([pod.ends_by_us for _, pod in awaited], default=now_us),
        waited_us=now_us - (workload.waiting_since_us or workload.created_at_us),
        requested=chunk_amounts(chunk),
        yielding=_yielding(session, workload),
    )


def _fewest(session: Session, chunk: Chunk, endings: list[Ending]) -> int:
    """Return a lower bound for the number of pods that must end, from the number of missing GPUs.

    Example: a gang of 8 GPUs is pending and 3 GPUs are free. The first pods to end have 2, 2 and 4 GPUs. The result
    is 3.
    """
    missing = chunk_gpu_milli(chunk) - sum(account.later_milli for account in session.ledger.nodes)
    for count, (_, _, pod) in enumerate(endings):
        if missing <= 0:
            return count
        missing -= pod.request.gpu_milli
    return len(endings)


def _steps(first: int, most: int) -> Iterator[int]:
    """Yield `first`, then numbers at growing distances from it, and `most` at the end.

    Example: `list(_steps(1, 20))` returns `[1, 2, 3, 5, 9, 17, 20]`.
    """
    step, count = 1, first
    while count < most:
        yield count
        count, step = first + step, step * 2
    yield most


def _yielding(session: Session, workload: Workload) -> Amounts:
    """Return the amounts of the backfilled pods of the project that the scheduler can evict for the workload."""
    pods = {pod.id: pod for victim in _backfilled_inside(session, workload) for pod in victim.pods}
    return chunk_amounts(pods.values())


def _backfilled_inside(session: Session, workload: Workload) -> Iterator[Victim]:
    """Yield the backfilled candidates of the project, in victim order.

    These are preemptible workloads behind this one in the queue that started after this workload began to starve.
    """
    since_us = starving_since_us(session, workload)
    seconds = session.tree.nearest(workload.project, preempt_min_runtime)
    on_loan: list[Victim] = []
    for other in session.running():
        if (
            other.project != workload.project
            or other.id == workload.id
            or not other.preemptible
            or other.started_at_us < since_us
            or workload_order(other) < workload_order(workload)
            or is_protected(other, seconds, session.snapshot.now_us)
        ):
            continue
        *elastic, everything = give_up_chunks(other)
        on_loan += [Victim(other, part, is_core=False) for part in elastic]
        on_loan.append(Victim(other, everything))
    now_us = session.snapshot.now_us
    yield from sorted(on_loan, key=lambda victim: victim_order(victim, gpu_ns_since_start(victim, now_us)))


_NO_WORKLOAD = Workload("", "", "", 0, preemptible=True, created_at_us=0, pods=())
