"""One decision with its snapshot, and the violations found in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from tests.world.capacity import ClusterCapacity
from tests.world.facts import (
    Tree,
    add,
    all_pods,
    held_by_project,
    sized,
    total,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from orchestrator.planner.model import Amounts, Plan, Snapshot, Workload


@dataclass(frozen=True)
class Violation:
    """A violation: the name of the check, and the facts."""

    check: str
    facts: str

    def __str__(self) -> str:
        return f"{self.check}: {self.facts}"


class Step:
    """One decision with its snapshot, prepared for all checks."""

    def __init__(self, before: Snapshot, decision: Plan) -> None:
        before = self.before = sized(before)
        self.plan = decision
        self.tree = Tree(before.projects)
        self.nodes = {node.name: node for node in before.nodes}
        self.workloads = {workload.id: workload for workload in before.workloads}
        self.pods = {pod.id: pod for _, pod in all_pods(before)}
        self.evicted = {eviction.pod for eviction in decision.evictions}
        self.bound = {binding.pod: binding for binding in decision.bindings}
        self.nominated = {binding.pod: binding for binding in decision.nominations}
        self.running = [
            (workload, pod)
            for workload, pod in all_pods(before)
            if pod.state is PodState.ALLOCATED and pod.id not in self.evicted
        ]
        self.held_before = held_by_project(self.tree, self.running)
        started = [(self.workloads[binding.workload], self.pods[pod]) for pod, binding in self.bound.items()]
        self.held_after = held_by_project(self.tree, [*self.running, *started])
        self.leaving = [
            (workload, pod)
            for workload, pod in all_pods(before)
            if pod.node in self.nodes
            and (pod.id in self.evicted or (pod.state is PodState.RELEASING and not pod.stuck))
        ]
        self.held_until_gone = held_by_project(self.tree, [*self.running, *started, *self.leaving])
        self.firm_after = held_by_project(self.tree, [*self.running, *started], only_firm=True)
        self.firm_until_gone = held_by_project(
            self.tree, [*self.running, *started, *self.leaving], only_firm=True
        )

    def chunk_bound_or_nominated(self, workload: str) -> Amounts:
        return total(
            self.pods[binding.pod]
            for binding in (*self.plan.bindings, *self.plan.nominations)
            if binding.workload == workload
        )

    def first_chunk_bound_or_nominated(self, workload: Workload) -> Amounts:
        """Return `chunk_bound_or_nominated` of only the first chunk of a workload that grows pod by pod."""
        if workload.groups is not None:
            return self.chunk_bound_or_nominated(workload.id)
        running = sum(other.id == workload.id for other, _ in self.running)
        entries = [*self.plan.bindings, *self.plan.nominations]
        pods = [self.pods[entry.pod] for entry in entries if entry.workload == workload.id]
        return total(pods[: max(1, workload.min_member - running)])

    def capacity_left(self) -> ClusterCapacity:
        """Return the capacity beside the pods that continue to run, after all other terminating pods have ended."""
        capacities = ClusterCapacity(self.before.nodes)
        for _, pod in all_pods(self.before):
            if pod.node is not None and pod.state is PodState.RELEASING and pod.stuck:
                capacities.take_pod(pod)
        for _, pod in self.running:
            capacities.take_pod(pod)
        return capacities

    def promised(self, name: str, *, only_firm: bool = False) -> Amounts:
        """Return the nominated amounts of a project and its children; with `only_firm`, those
        of non-preemptible pods.
        """
        return total(
            self.pods[entry.pod]
            for entry in self.plan.nominations
            if name in self.tree.lineage[self.workloads[entry.workload].project]
            and not (only_firm and self.workloads[entry.workload].preemptible)
        )

    def tier(
        self, workload: Workload, held: dict[str, Amounts], requested: Amounts, above: Collection[str] = ()
    ) -> int:
        """Return 0 if the request keeps project and departments within their quotas, 1 if within their fair shares,
        else 2.

        Departments in `above` do not count.
        """
        worst = 0
        for name in self.tree.lineage.get(workload.project, ()):
            if name in above:
                continue
            then = add(held[name], requested)
            if within(then, self.tree.quota(name), requested):
                continue
            quota, share = self.tree.quota(name)[0], self.plan.shares_gpu_milli.get(name, 0)
            if requested[0] and quota is not None and then[0] > max(quota, share):
                return 2
            worst = 1
        return worst
