"""Requests for which a search found nothing: who asks for the same or more, alike otherwise, finds nothing either."""

from collections.abc import Hashable

from orchestrator.planner.gangs import Chunk, shape_of
from orchestrator.planner.model import Workload
from orchestrator.planner.session import Session

Size = tuple[int, int, int]
"""GPUs, or the part of each device, CPU and memory."""


class Hopeless:
    """Remembers failures in one decision, by `owner`: what else decides whether a search succeeds."""

    def __init__(self) -> None:
        self._failed: dict[tuple[Hashable, ...], list[Size]] = {}
        self.count = 0

    def includes(self, session: Session, workload: Workload, chunk: Chunk, owner: Hashable) -> bool:
        """Whether a search for the same or less has failed."""
        if not self._failed:
            return False
        kind, size = _kind(session, workload, chunk, owner)
        return any(
            failed[0] <= size[0] and failed[1] <= size[1] and failed[2] <= size[2]
            for failed in self._failed.get(kind, ())
        )

    def add(self, session: Session, workload: Workload, chunk: Chunk, owner: Hashable) -> None:
        """Remember that a search failed."""
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
    """What two requests must have in common to be compared, and the size of this one."""
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
