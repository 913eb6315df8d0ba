"""The state of one decision, shared by its actions: the ledger, the shares, and what has been decided so far."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.planner.gangs import chunk_gpu_milli, start_chunks
from orchestrator.planner.ledger import Ledger, capacity_gpu_milli, demand_gpu_milli
from orchestrator.planner.model import (
    Binding,
    Eviction,
    PendingReason,
    Plan,
    Pod,
    PodState,
    Snapshot,
    Waiting,
    Workload,
)
from orchestrator.planner.placement import Placement, Placer
from orchestrator.planner.quota import ProjectTree, gpus
from orchestrator.planner.shares import fair_shares

Placed = list[tuple[Pod, Placement]]


class Decision:
    """What has been granted, taken and refused in this decision."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.tree = ProjectTree(snapshot.projects)
        known = tuple(each for each in snapshot.workloads if each.project in self.tree.projects)
        self.ledger = Ledger(snapshot, self.tree)
        self.placer = Placer(self.ledger)
        self.capacity_gpu_milli = capacity_gpu_milli(snapshot.nodes)
        self.shares_gpu_milli = fair_shares(
            self.tree, demand_gpu_milli(snapshot, self.tree), self.capacity_gpu_milli
        )
        self.workloads = {workload.id: workload for workload in known}
        self.refusals: dict[str, PendingReason] = {}
        self._placed: set[str] = set()
        self._bindings: list[Binding] = []
        self._evictions: list[Eviction] = []
        for workload in snapshot.workloads:
            if workload.project not in self.tree.projects and start_chunks(workload):
                message = f"there is no project {workload.project!r}: create it, or label the namespace"
                self.refusals[workload.id] = PendingReason(Waiting.UNKNOWN_PROJECT, message)

    def pending(self) -> list[Workload]:
        """Workloads of known projects with a chunk that could start."""
        return [workload for workload in self.workloads.values() if start_chunks(workload)]

    def unplaced_chunks(self, workload: Workload) -> list[tuple[Pod, ...]]:
        """The chunks of the workload that this decision has not placed or promised yet."""
        return [chunk for chunk in start_chunks(workload) if not any(pod.id in self._placed for pod in chunk)]

    def running_by_project(self) -> dict[str, list[Workload]]:
        """Workloads that hold something, as decided so far."""
        running: dict[str, list[Workload]] = {}
        for workload in self.workloads.values():
            if any(pod.state is PodState.ALLOCATED for pod in workload.pods):
                running.setdefault(workload.project, []).append(workload)
        return running

    def place_all(self, workload: Workload, chunk: Sequence[Pod]) -> Placed | None:
        """Place every pod of the chunk on the ledger, or none; None says that one found no place."""
        checkpoint = self.ledger.checkpoint()
        placed: Placed = []
        for pod in chunk:
            placement = self.placer.find(workload, pod)
            if placement is None:
                self.ledger.rollback(checkpoint)
                return None
            self.ledger.place(workload, pod, placement.node, placement.devices)
            placed.append((pod, placement))
        return placed

    def grant(self, workload: Workload, placed: Placed) -> None:
        """Make the placements part of the plan; all wait when one of them waits for a release."""
        self._placed.update(pod.id for pod, _ in placed)
        if any(placement.promised for _, placement in placed):
            asked = chunk_gpu_milli(tuple(pod for pod, _ in placed))
            message = (
                f"{gpus(asked)} GPUs are promised to it: it starts when the pods that hold them are gone"
            )
            self.refuse(workload, PendingReason(Waiting.RELEASING, message))
            return
        self._bindings += [
            Binding(pod.id, workload.id, placement.node, placement.devices) for pod, placement in placed
        ]

    def refuse(self, workload: Workload, reason: PendingReason) -> None:
        """Remember why the workload, or the rest of it, waits."""
        self.refusals[workload.id] = reason

    def take(self, evictions: Iterable[Eviction]) -> None:
        """Make the evictions, already on the ledger, part of the plan."""
        for eviction in evictions:
            if any(known.pod == eviction.pod for known in self._evictions):
                continue
            self._evictions.append(eviction)
            workload = self.workloads[eviction.workload]
            pods = tuple(
                replace(pod, state=PodState.RELEASING) if pod.id == eviction.pod else pod
                for pod in workload.pods
            )
            self.workloads[workload.id] = replace(workload, pods=pods)

    def plan(self) -> Plan:
        """The decision as data."""
        return Plan(
            bindings=tuple(self._bindings),
            evictions=tuple(self._evictions),
            shares_gpu_milli=dict(self.shares_gpu_milli),
            allocated_gpu_milli=dict(self.ledger.allocated_gpu_milli),
            pending={key: self.refusals[key] for key in sorted(self.refusals)},
        )
