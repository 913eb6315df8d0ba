"""Rules for a cluster at rest: no workload is pending for idle devices, or within its quota for borrowed ones.

Both rules are checked by trying all ways to place the pods, in small clusters. They are skipped where the answer is not
sure: with reservations, a maximum number of evictions, or quotas for GPU models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from tests.world.capacity import ClusterCapacity
from tests.world.coverage import Coverage
from tests.world.facts import (
    SECOND_US,
    Tree,
    add,
    admits,
    all_pods,
    allocated,
    held_by_project,
    next_chunk,
    pending,
    sized,
    total,
    within,
)
from tests.world.failing import failed_nodes, has_failed
from tests.world.packing import Item, fits
from tests.world.pod_constraints import PodConstraints, releasing
from tests.world.step import Violation
from tests.world.water import fair_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.planner.model import Pod, Snapshot, Workload
    from tests.world.capacity import NodeCapacity


def check_rest(snapshot: Snapshot) -> list[Violation]:
    """Return all violations in a cluster that the planner no longer changes."""
    return list(_Rest(snapshot).violations())


class _Rest:
    def __init__(self, snapshot: Snapshot) -> None:
        snapshot = self._snapshot = sized(snapshot)
        self._tree = Tree(snapshot.projects)
        self._coverage = Coverage(snapshot, self._tree, fair_shares(snapshot, self._tree) or {})
        running = [entry for entry in all_pods(snapshot) if entry[1].state is PodState.ALLOCATED]
        self._running = running
        self._held = held_by_project(self._tree, running)
        self._firm = held_by_project(self._tree, running, only_firm=True)
        self._constraints = PodConstraints(snapshot)
        self._with_models = any(project.gpu_models for project in snapshot.projects)

    def violations(self) -> Iterator[Violation]:
        if any(not pod.stuck for pod in releasing(self._snapshot)):
            return
        if self._with_models or self._has_reservations():
            return
        for workload in self._snapshot.workloads:
            chunk = next_chunk(workload) if workload.project in self._tree.projects else []
            if not chunk or not self._may_have(workload, chunk) or _has_inner_topology(workload):
                continue
            if has_failed(self._snapshot, workload):
                continue
            gang = "-gang" * (len(chunk) > 1)
            names = f"{workload.id} waits with {len(chunk)} pods for {total(chunk)}"
            if self._fits_with(workload, chunk, lambda *_: "stays"):
                yield Violation(f"idle{gang}", f"{names}, which is idle")
            elif self._is_entitled(workload, chunk) and self._snapshot.settings.max_evictions is None:
                yield from self._starved(workload, chunk, names, gang)

    def _starved(self, workload: Workload, chunk: list[Pod], names: str, gang: str) -> Iterator[Violation]:
        def takes(other: Workload, pod: Pod) -> str:
            return "goes" if self._is_lent(workload, other, pod) else "stays"

        def takes_and_moves(other: Workload, pod: Pod) -> str:
            return "goes" if self._is_lent(workload, other, pod) else self._moves(workload, other)

        if self._fits_with(workload, chunk, takes):
            yield Violation(f"starved{gang}", f"{names} within its quota, which others borrow")
        elif (
            self._may_move_many()
            and self._constraints.are_none  # migrated pods have constraints of their own
            and self._fits_with(workload, chunk, takes_and_moves)
        ):
            yield Violation(
                f"starved-moves{gang}", f"{names} within its quota; evicting and moving makes the room"
            )

    def _has_reservations(self) -> bool:
        """Return whether devices may be reserved for a workload that is pending for long."""
        snapshot = self._snapshot
        after = snapshot.settings.reservation_after_seconds
        if not snapshot.now_us or after is None:
            return False
        return any(
            snapshot.now_us - max(workload.created_at_us, workload.waiting_since_us) >= after * SECOND_US
            and total(pending(workload))[0] > 1000
            for workload in snapshot.workloads
            if pending(workload)
        )

    def _may_have(self, workload: Workload, chunk: list[Pod]) -> bool:
        requested = total(chunk)
        for name in self._tree.lineage[workload.project]:
            if not within(add(self._held[name], requested), self._tree.limit(name), requested):
                return False
            firm = add(self._firm[name], requested)
            if not workload.preemptible and not within(firm, self._tree.quota(name), requested):
                return False
        return True

    def _is_entitled(self, workload: Workload, chunk: list[Pod]) -> bool:
        requested = total(chunk)
        return bool(requested[0]) and all(
            within(add(self._held[name], requested), self._tree.quota(name), requested)
            for name in self._tree.lineage[workload.project]
        )

    def _is_lent(self, workload: Workload, other: Workload, pod: Pod) -> bool:
        """Return whether another project's pod may be evicted: it is borrowed, and nothing protects it."""
        ours, theirs = self._tree.sides(workload.project, other.project)
        if ours is None or theirs is None or not other.preemptible or self._is_held_fast(other):
            return False
        seconds = self._tree.nearest(theirs, "reclaim_min_runtime_seconds")
        now_us = self._snapshot.now_us
        if now_us and seconds and now_us < other.started_at_us + seconds * SECOND_US:
            return False
        return any(
            pod in candidate.pods and candidate.workload is other
            for candidate in self._coverage.borrowed(theirs)
        )

    def _moves(self, workload: Workload, other: Workload) -> str:
        held_fast = not other.preemptible or self._is_held_fast(other) or other.id == workload.id
        return "stays" if held_fast or other.topology or other.groups else "moves"

    def _is_held_fast(self, workload: Workload) -> bool:
        """Return whether a disruption budget selects pods of the workload."""
        pods = {pod.id for pod in workload.pods}
        return any(not pods.isdisjoint(budget.pods) for budget in self._snapshot.budgets)

    def _may_move_many(self) -> bool:
        most = self._snapshot.settings.max_consolidation_victims
        return most is None or most >= len({workload.id for workload, _ in self._running})

    def _fits_with(
        self, workload: Workload, chunk: list[Pod], fate: Callable[[Workload, Pod], str]
    ) -> bool | None:
        """Return whether the chunk fits if `fate` decides for each running pod whether it stays, is migrated or is
        evicted.
        """
        capacities = ClusterCapacity(self._snapshot.nodes)
        items = []
        present = releasing(self._snapshot)
        for pod in present:
            capacities.take_pod(pod)
        for other, pod in self._running:
            decided = fate(other, pod)
            node = next((node for node in self._snapshot.nodes if node.name == pod.node), None)
            if decided == "stays" or node is None or not node.schedulable:
                capacities.take_pod(pod)
                present.append(pod)
            elif decided == "moves":
                items.append(self._item(other, pod))
        for other, pod in all_pods(self._snapshot):
            if pod.state is PodState.PENDING and pod.nominated_node and other.id != workload.id:
                capacities.take(pod.nominated_node, pod.request, pod.nominated_devices)
                present.append(replace(pod, node=pod.nominated_node))
        free = list(capacities.by_name.values())
        for domain in self._domains(workload):
            wanted = [self._item(workload, pod, domain) for pod in chunk]
            if not all(item.nodes for item in wanted) or not fits([*wanted, *items], free):
                continue
            if self._constraints.are_none or self._keeps_constraints(chunk, wanted, present, free):
                return True
        return False

    def _keeps_constraints(
        self, chunk: list[Pod], wanted: list[Item], present: list[Pod], free: list[NodeCapacity]
    ) -> bool:
        """Return whether the chunk fits in a way that satisfies the constraints between pods."""
        beside = [*self._constraints.foreign, *self._constraints.on_nodes(present)]
        candidates = [(pod, sorted(item.nodes)) for pod, item in zip(chunk, wanted, strict=True)]
        return any(
            fits(
                [Item(item.request, frozenset((node,))) for item, node in zip(wanted, nodes, strict=True)],
                free,
            )
            for nodes in self._constraints.placements(candidates, beside)
        )

    def _item(self, workload: Workload, pod: Pod, domain: frozenset[str] | None = None) -> Item:
        project = self._tree.projects.get(workload.project)
        failed = failed_nodes(self._snapshot, workload)
        names = (
            node.name
            for node in self._snapshot.nodes
            if (domain is None or node.name in domain)
            and admits(node, pod, workload, project)
            and node.name not in failed
        )
        return Item(pod.request, frozenset(names))

    def _domains(self, workload: Workload) -> Iterable[frozenset[str] | None]:
        """Return the sets of nodes, one of which must take all pods. None stands for all nodes."""
        rule = workload.topology
        if rule is None or rule.required is None:
            return [None]
        levels = rule.levels[: rule.levels.index(rule.required) + 1]
        groups: dict[tuple[str, ...], set[str]] = {}
        for node in self._snapshot.nodes:
            values = tuple(node.labels.get(level, "") for level in levels)
            if all(values):
                groups.setdefault(values, set()).add(node.name)
        at_home = {pod.node for pod in allocated(workload)}
        return [frozenset(names) for names in groups.values() if at_home <= names]


def _has_inner_topology(workload: Workload) -> bool:
    groups = () if workload.groups is None else workload.groups.children
    return any(group.topology is not None for group in groups)
