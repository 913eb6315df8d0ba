"""Whose turn it is: the most deprived project first, re-weighed after every grant; inside it, priority, then age.

Projects are compared level by level with what they would hold if their next workload ran:
1. not above the fair share; 2. still within the quota; 3. higher priority; 4. smaller part of what it may hold,
with the next workload, then without; 5. older, then by name.
"""

import heapq
from collections.abc import Iterable, Mapping

from orchestrator.planner.gangs import chunk_gpu_milli, start_chunks
from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import Workload

_BILLION = 1_000_000_000
_INFINITE_SHARE = 1 << 62

ShareKey = tuple[bool, bool, int, int, int, int, str]


def workload_order(workload: Workload) -> tuple[int, int, str, str]:
    """Sort key inside a project: higher priority, then older, then by name."""
    return (-workload.priority, workload.created_at_us, workload.name, workload.id)


def entitled_gpu_milli(quota_gpu_milli: int, limit_gpu_milli: int | None, share_gpu_milli: int) -> int:
    """What a project may hold while others want it too: its quota or its fair share, within its limit."""
    entitled = max(quota_gpu_milli, share_gpu_milli)
    return entitled if limit_gpu_milli is None else min(entitled, limit_gpu_milli)


def share_per_billion(held_gpu_milli: int, entitled_milli: int) -> int:
    """How much of what it may hold a project holds, in parts per billion; without entitlement, more than any other."""
    if entitled_milli <= 0:
        return _INFINITE_SHARE if held_gpu_milli else 0
    return held_gpu_milli * _BILLION // entitled_milli


class TurnOrder:
    """Hands out pending workloads one by one; only the queues on the path of a change are weighed again."""

    def __init__(
        self, ledger: Ledger, shares_gpu_milli: Mapping[str, int], pending: Iterable[Workload]
    ) -> None:
        self._ledger = ledger
        self._shares = shares_gpu_milli
        self._queues: dict[str, list[Workload]] = {}
        for workload in sorted(pending, key=workload_order, reverse=True):
            self._queues.setdefault(workload.project, []).append(workload)
        self._heaps: dict[str | None, list[tuple[ShareKey, str]]] = {}
        for name in sorted(self._queues):
            self._enqueue_path(name)

    def pop(self) -> Workload | None:
        """The next workload, or None when every one had its turn. The caller reports the outcome by `settle`."""
        name = self._best_leaf(None)
        return None if name is None else self._queues[name].pop()

    def settle(self, project: str) -> None:
        """Weigh the project and its departments again after its workload had its turn."""
        self._enqueue_path(project)

    def _enqueue_path(self, leaf: str) -> None:
        """Put the leaf, then each department above it, into its parent's heap, keyed anew."""
        lineage = self._ledger.tree.lineage[leaf]
        for depth, name in enumerate(lineage):
            parent = lineage[depth + 1] if depth + 1 < len(lineage) else None
            candidate = leaf if depth == 0 else self._peek_leaf(name)
            if candidate is not None and self._queues.get(candidate):
                heap = self._heaps.setdefault(parent, [])
                heap[:] = [entry for entry in heap if entry[1] != name]
                heapq.heapify(heap)
                heapq.heappush(heap, (self._key(name, self._queues[candidate][-1]), name))
            else:
                self._drop(parent, name)

    def _drop(self, parent: str | None, name: str) -> None:
        heap = self._heaps.get(parent, [])
        heap[:] = [entry for entry in heap if entry[1] != name]
        heapq.heapify(heap)

    def _peek_leaf(self, name: str) -> str | None:
        if self._queues.get(name) and name not in self._ledger.tree.children:
            return name
        heap = self._heaps.get(name)
        return self._peek_leaf(heap[0][1]) if heap else (name if self._queues.get(name) else None)

    def _best_leaf(self, parent: str | None) -> str | None:
        heap = self._heaps.get(parent)
        return self._peek_leaf(heap[0][1]) if heap else None

    def _key(self, name: str, head: Workload) -> ShareKey:
        project = self._ledger.tree.projects[name]
        held = self._ledger.allocated_gpu_milli[name]
        share = self._shares[name]
        chunks = start_chunks(head)
        asked = chunk_gpu_milli(chunks[0]) if chunks else 0
        entitled = entitled_gpu_milli(project.quota_gpu_milli, project.limit_gpu_milli, share)
        return (
            share < held,
            held + asked > project.quota_gpu_milli,
            -project.priority,
            share_per_billion(held + asked, entitled),
            share_per_billion(held, entitled),
            project.created_at_us,
            name,
        )
