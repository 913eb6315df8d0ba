"""Common functions of the actions that evict: select pending workloads, remember failed searches, write a result into
the plan.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk, shape_of
from orchestrator.planner.model import CAPACITY_REASONS, Waiting, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.arrangement import Arrangement, carry_out_arrangement
from orchestrator.planner.preemption.victim_selection import Losses
from orchestrator.planner.preemption.victims import evictions_for
from orchestrator.planner.session import Session


def waiting_for(session: Session, codes: Iterable[Waiting]) -> list[Workload]:
    """Return the workloads that are pending for one of these reasons and for which pods may be evicted now."""
    reasons = tuple(codes)
    now_us = session.snapshot.now_us
    return [
        workload
        for workload in session.pending()
        if session.waits_for(workload, reasons) and not (now_us and now_us < workload.evicts_from_us)
    ]


def may_evict_now(session: Session, waiting: Iterable[Workload]) -> list[Workload]:
    """Return the workloads, except those with nominated pods that still wait for victims to terminate.

    The victims of the first pods of an elastic workload can be nominated to other nodes. If more pods were evicted for
    the workload now, it would evict these victims again before its first pods have started.

    Example: pod 1 of a job evicts a victim from node a, and the victim is nominated to node b. Pod 2 of the job must
    not evict the victim from node b.
    """
    return [workload for workload in waiting if not session.waits_for_its_seat(workload)]


def better_claims(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    suspended: Iterable[Workload],
) -> bool:
    """Return whether a more entitled workload of another project would fit if this project started nothing in this
    decision.

    The next decision would give the GPUs to such a workload. The caller has removed the `suspended` workloads from the
    ledger. The ledger is unchanged afterwards.
    """
    ours = session.tier(workload, chunk)
    if ours is EntitlementTier.GUARANTEED:
        return False
    checkpoint = session.ledger.checkpoint()
    suspended_ids = {other.id for other in suspended}
    for other in session.started(workload.project):
        if other.id not in suspended_ids:
            session.lift(other)

    def is_ahead(rival: Workload, theirs: Chunk) -> bool:
        claim = session.tier(rival, theirs)
        return claim < ours or (claim is ours and session.precedes(rival, theirs, workload, chunk))

    waiting = [(rival, session.next_chunk(rival)) for rival in _one_of_each_kind(session)]
    for rival, theirs in waiting:
        if rival.project == workload.project or not theirs or not is_ahead(rival, theirs):
            continue
        if session.violation(rival, theirs) is not None:
            continue
        if session.place_all(rival, theirs) is not None:
            session.ledger.rollback(checkpoint)
            return True
    session.ledger.rollback(checkpoint)
    return False


def _one_of_each_kind(session: Session) -> Iterator[Workload]:
    """Yield, for each kind of workload that waits for capacity, the first one in the queue of its project."""
    for names in session.once(_by_kind).values():
        while names and not _waits_for_capacity(session, names[-1]):
            names.pop()
        if names:
            yield session.workload(names[-1])
    for name in session.queues.queued_again:
        if _waits_for_capacity(session, name):
            yield session.workload(name)


def _by_kind(session: Session) -> dict[tuple[object, ...], list[str]]:
    """Return the ids of the workloads that wait for capacity, by kind, in reverse queue order."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for workload in sorted(waiting_for(session, CAPACITY_REASONS), key=workload_order, reverse=True):
        chunk = session.next_chunk(workload)
        shape = (*session.shape_beside_others(chunk), *shape_of(workload, chunk))
        kinds.setdefault((workload.project, workload.preemptible, *shape), []).append(workload.id)
    return kinds


def _waits_for_capacity(session: Session, name: str) -> bool:
    workload = session.workload(name)
    return bool(session.next_chunk(workload)) and session.waits_for(workload, CAPACITY_REASONS)


def carry_out(
    session: Session, workload: Workload, losses: Losses, placed: Placed, elsewhere: Arrangement
) -> None:
    """Add the result of a search to the plan. The ledger has it already."""
    carry_out_arrangement(session, elsewhere)
    session.take(evictions_for(workload, losses))
    session.grant(workload, placed, after_evictions=bool(losses))


def nominate_victims(
    session: Session, workload: Workload, losses: Losses, placements: Mapping[str, Placed]
) -> None:
    """Nominate victims to these placements, which are on the ledger. `placements` is by id of the victim's workload.

    If a victim's gang can no longer run, pods of the gang that were migrated earlier lose their nominations. The plan
    then shows them as evicted for this workload, not as migrated for an earlier one.
    """
    for name, placed in placements.items():
        session.reserve_seats(session.workload(name), placed)
    for victim, reason in losses:
        if not all(map(session.seats.is_nominated, victim.pods)):
            moved = session.end_useless_nominations(victim.workload.id)
            for eviction in evictions_for(workload, [(Victim(victim.workload, moved), reason)]):
                session.seats.evict(eviction)


Size = tuple[int, int, int]
"""A request: GPUs (or the fraction of each device), CPU and memory."""


class Hopeless:
    """The failed searches of one decision. `owner` is a key of the conditions of a search other than the request."""

    def __init__(self) -> None:
        self._failed: dict[tuple[Hashable, ...], list[Size]] = {}
        self.count = 0

    def includes(self, session: Session, workload: Workload, chunk: Chunk, owner: Hashable) -> bool:
        """Return whether a search for an equal or smaller request of the same kind has failed."""
        if not self._failed:
            return False
        kind, size = _kind(session, workload, chunk, owner)
        return any(
            failed[0] <= size[0] and failed[1] <= size[1] and failed[2] <= size[2]
            for failed in self._failed.get(kind, ())
        )

    def add(self, session: Session, workload: Workload, chunk: Chunk, owner: Hashable) -> None:
        """Store that a search failed."""
        kind, size = _kind(session, workload, chunk, owner)
        smaller = [
            failed
            for failed in self._failed.get(kind, ())
            if not (size[0] <= failed[0] and size[1] <= failed[1] and size[2] <= failed[2])
        ]
        self._failed[kind] = [*smaller, size]
        self.count += 1


def _kind(
    session: Session, workload: Workload, chunk: Chunk, owner: Hashable
) -> tuple[tuple[Hashable, ...], Size]:
    """Return the key that comparable requests share, and the size of this request."""
    tier = session.reservations.key(workload, chunk)
    if session.ledger.neighbours is not None:
        tier = (*tier, *session.shape_beside_others(chunk))
    first = chunk[0].request
    if all(pod is chunk[0] or pod.request == first for pod in chunk) and workload.groups is None:
        constraints = {id(pod.constraints): pod.constraints for pod in chunk}
        sizeless = (
            first.is_shared,
            first.gpu_memory_mib,
            first.shared_devices,
            first.claim_specs,
            first.scalars,
            any(pod.extended_claim is None for pod in chunk),
            len(chunk),
        )
        size = (
            first.gpu_portion_milli if first.is_shared else first.gpu_count,
            first.cpu_milli,
            first.memory_bytes,
        )
        kind = (owner, tier, workload.interactive, workload.topology, *sizeless, *constraints.values())
        return kind, size
    return (owner, tier, *shape_of(workload, chunk)), (0, 0, 0)
