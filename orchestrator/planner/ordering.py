"""The queue order: the most deprived project first, compared again after each start; then by priority, then by age.

Projects are compared level by level by these keys:

1. not above the fair share
2. within the quota, with the next workload
3. higher priority
4. the next workload requests no resource without entitlement
5. smaller use divided by entitlement, with the next workload, then without it
6. smaller entitlement
7. older, then by name
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.planner.accounting.amounts import EVERY_RESOURCE, Figures, entitled_amounts
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import UNLIMITED, Amounts, Pod, Workload

_BILLION = 1_000_000_000
_WITHOUT_CLAIM = 1_000_000_000_000


PriorityKey = tuple[bool, bool, int, bool, int, int, int, int, str]
QueueKey = tuple[int, int, int, str, str]


def workload_order(workload: Workload) -> tuple[int, int, str, str]:
    """Return the sort key of a workload in its project: higher priority first, then older, then by name."""
    return (-workload.priority, workload.created_at_us, workload.name, workload.id)


def share_per_billion(held: int, entitled: int) -> int:
    """Return the use of a project divided by its entitlement, in parts per billion. Without an entitlement, the result
    is larger than any with one.

    Example: `share_per_billion(3000, 4000)` returns `750000000`.
    """
    return held * _BILLION // entitled if entitled > 0 else held * _WITHOUT_CLAIM


def dominant_share(
    held: Amounts, entitled: Amounts, total: Amounts, resources: Sequence[int] = EVERY_RESOURCE
) -> int:
    """Return the largest `share_per_billion`. The cluster's `total` replaces an unlimited entitlement."""
    shares = [
        share_per_billion(
            held[resource],
            min(entitled[resource], total[resource])
            if entitled[resource] >= UNLIMITED
            else entitled[resource],
        )
        for resource in resources
    ]
    return max(shares)


def is_over_share(figures: Figures, resources: Sequence[int] = EVERY_RESOURCE) -> bool:
    """Return whether the project holds more than its fair share of every resource that is divided."""
    held, share = figures.held, figures.share
    is_divided = False
    for resource in resources:
        if share[resource] < UNLIMITED and (share[resource] or held[resource]):
            if held[resource] <= share[resource]:
                return False
            is_divided = True
    return is_divided


def priority_key(
    figures: Figures,
    requested: Amounts,
    total: Amounts,
    *,
    priority: int,
    created_at_us: int,
    name: str,
    resources: Sequence[int] = EVERY_RESOURCE,
) -> PriorityKey:
    """Return the sort key of a project or department whose next workload requests `requested`."""
    held = figures.held
    then = (held[0] + requested[0], held[1] + requested[1], held[2] + requested[2])
    entitled, quota = entitled_amounts(figures), figures.quota
    beyond_quota = without_claim = False
    for resource in resources:
        beyond_quota = beyond_quota or then[resource] > quota[resource]
        without_claim = without_claim or bool(requested[resource] and not entitled[resource])
    return (
        is_over_share(figures, resources),
        beyond_quota,
        -priority,
        without_claim,
        dominant_share(then, entitled, total, resources),
        dominant_share(held, entitled, total, resources),
        entitled[0],
        created_at_us,
        name,
    )


class PriorityQueue:
    """The pending workloads in queue order, chunk by chunk. After a change, only the project and its departments are
    compared again.

    `next_chunk` returns the next chunk of a workload, `stage` its progress. Workloads below their minimum come first,
    then those at their minimum, then those above it.
    """

    def __init__(
        self,
        ledger: Ledger,
        shares: Mapping[str, Amounts],
        pending: Iterable[Workload],
        next_chunk: Callable[[Workload], tuple[Pod, ...]],
        stage: Callable[[Workload], int],
    ) -> None:
        self._ledger = ledger
        self._shares = shares
        self._next_chunk = next_chunk
        self._stage = stage
        self._queues: dict[str, list[tuple[QueueKey, Workload]]] = {}
        for workload in pending:
            self._queues.setdefault(workload.project, []).append((self._queue_key(workload), workload))
        self._heaps: dict[str | None, list[tuple[PriorityKey, str]]] = {}
        for name in sorted(self._queues):
            heapq.heapify(self._queues[name])
            self._enqueue_path(name)

    def pop(self) -> Workload | None:
        """Remove and return the next workload; None if none is left. The caller then calls `settle`."""
        name = self._best_leaf(None)
        return None if name is None else heapq.heappop(self._queues[name])[1]

    def settle(self, project: str, again: Workload | None = None) -> None:
        """Compute the sort keys of the project and its departments again. If `again` is given, queue its next chunk."""
        if again is not None:
            heapq.heappush(self._queues[project], (self._queue_key(again), again))
        self._enqueue_path(project)

    def _queue_key(self, workload: Workload) -> QueueKey:
        return (
            -workload.priority,
            self._stage(workload),
            workload.created_at_us,
            workload.name,
            workload.id,
        )

    def _enqueue_path(self, leaf: str) -> None:
        """Put the project, then each department above it, into its parent's heap with a new sort key."""
        lineage = self._ledger.tree.lineage[leaf]
        for depth, name in enumerate(lineage):
            parent = lineage[depth + 1] if depth + 1 < len(lineage) else None
            candidate = leaf if depth == 0 else self._peek_leaf(name)
            heap = self._heaps.setdefault(parent, [])
            if heap and heap[0][1] == name:
                heapq.heappop(heap)  # the usual case: the changed project was first in the heap
            elif heap:
                heap[:] = [entry for entry in heap if entry[1] != name]
                heapq.heapify(heap)
            if candidate is not None and self._queues.get(candidate):
                heapq.heappush(heap, (self._key(name, self._queues[candidate][0][1]), name))

    def _peek_leaf(self, name: str) -> str | None:
        if self._queues.get(name):
            return name
        heap = self._heaps.get(name)
        return self._peek_leaf(heap[0][1]) if heap else None

    def _best_leaf(self, parent: str | None) -> str | None:
        heap = self._heaps.get(parent)
        return self._peek_leaf(heap[0][1]) if heap else None

    def _key(self, name: str, head: Workload) -> PriorityKey:
        project = self._ledger.tree.projects[name]
        return priority_key(
            self._ledger.figures(name, self._shares),
            chunk_amounts(self._next_chunk(head)),
            self._ledger.capacity,
            priority=project.priority,
            created_at_us=project.created_at_us,
            name=name,
            resources=self._ledger.tree.resources,
        )
