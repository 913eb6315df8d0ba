"""Places for a whole chunk of pods, together or not at all, close together where its topology says so."""

from collections.abc import Collection, Sequence

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.gangs import leaves
from orchestrator.planner.model import Pod, PodState, SubGroup, TopologyRule, Workload
from orchestrator.planner.placement.placer import Placer
from orchestrator.planner.placement.topology import domains_to_try
from orchestrator.planner.placements import Placed

Scope = Collection[int] | None
"""Positions of the nodes to look at; None: all."""


class ChunkPlacer:
    """Places chunks on one ledger."""

    def __init__(self, ledger: Ledger, placer: Placer) -> None:
        self._ledger = ledger
        self._placer = placer

    def place(self, workload: Workload, chunk: Sequence[Pod], *, only_now: bool = False) -> Placed | None:
        """Place every pod of the chunk on the ledger, or none; None says that one has no place.

        `only_now` leaves out what is still being released.
        """
        if workload.topology is None and workload.groups is None:
            return self._place_pods(workload, chunk, None, only_now=only_now)
        return self._place_group(workload, workload.groups, workload.topology, chunk, None, only_now=only_now)

    def _place_group(
        self,
        workload: Workload,
        group: SubGroup | None,
        rule: TopologyRule | None,
        chunk: Sequence[Pod],
        scope: Scope,
        *,
        only_now: bool,
    ) -> Placed | None:
        names = None if group is None else {leaf.name for leaf in leaves(group)}
        occupied = [
            self._ledger.by_name[pod.node].position
            for pod in workload.pods
            if pod.state is PodState.ALLOCATED
            and pod.node in self._ledger.by_name
            and (names is None or pod.sub_group in names)
        ]
        tries = [scope] if rule is None else domains_to_try(self._ledger, rule, chunk, scope, occupied)
        for domain in tries:
            placed = self._place_in(workload, group, chunk, domain, only_now=only_now)
            if placed is not None:
                return placed
        return None

    def _place_in(
        self,
        workload: Workload,
        group: SubGroup | None,
        chunk: Sequence[Pod],
        scope: Scope,
        *,
        only_now: bool,
    ) -> Placed | None:
        if group is None or not group.children:
            return self._place_pods(workload, chunk, scope, only_now=only_now)
        checkpoint = self._ledger.checkpoint()
        placed: Placed = []
        for child in group.children:
            names = {leaf.name for leaf in leaves(child)}
            pods = [pod for pod in chunk if pod.sub_group in names]
            part = (
                self._place_group(workload, child, child.topology, pods, scope, only_now=only_now)
                if pods
                else []
            )
            if part is None:
                self._ledger.rollback(checkpoint)
                return None
            placed += part
        return placed

    def _place_pods(
        self, workload: Workload, chunk: Sequence[Pod], scope: Scope, *, only_now: bool
    ) -> Placed | None:
        checkpoint = self._ledger.checkpoint()
        placed: Placed = []
        for pod in largest_first(chunk):
            placement = self._placer.find(workload, pod, scope, only_now=only_now)
            if placement is None:
                self._ledger.rollback(checkpoint)
                return None
            self._ledger.place(workload, pod, placement)
            placed.append((pod, placement))
        return placed


def largest_first(chunk: Sequence[Pod]) -> Sequence[Pod]:
    """Pods in the order in which they find room best."""
    return chunk if len(chunk) == 1 else sorted(chunk, key=lambda pod: -pod.request.gpu_milli)
