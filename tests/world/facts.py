"""Facts about a snapshot, computed without the planner: only its data classes are shared.

Amounts are tuples of `gpu_milli`, `cpu_milli`, `memory_bytes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI, Amounts, PodState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.labels import LabelRequirement
from orchestrator.planner.model import Node, Pod, Project, Request, Snapshot, SubGroup, Workload

NOTHING: Amounts = (0, 0, 0)
RESOURCES = (0, 1, 2)
SECOND_US = 1_000_000


def add(first: Amounts, second: Amounts) -> Amounts:
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def total(pods: Iterable[Pod]) -> Amounts:
    amounts = NOTHING
    for pod in pods:
        amounts = add(amounts, pod.request.amounts)
    return amounts


def allocated(workload: Workload) -> list[Pod]:
    return [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]


def pending(workload: Workload) -> list[Pod]:
    return [pod for pod in workload.pods if pod.state is PodState.PENDING]


def sized(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with requests for GPU memory as portions of the smallest GPU that has this memory."""
    if not any(pod.request.gpu_memory_mib for _, pod in all_pods(snapshot)):
        return snapshot
    workloads = tuple(
        replace(workload, pods=tuple(_sized(pod, snapshot) for pod in workload.pods))
        for workload in snapshot.workloads
    )
    return replace(snapshot, workloads=workloads)


def _sized(pod: Pod, snapshot: Snapshot) -> Pod:
    memory = pod.request.gpu_memory_mib
    if not memory:
        return pod
    large_enough = [node.gpu_memory_mib for node in snapshot.nodes if node.gpu_memory_mib >= memory]
    portion = -(-DEVICE_MILLI * memory // min(large_enough)) if large_enough else DEVICE_MILLI
    return replace(pod, request=replace(pod.request, gpu_portion_milli=portion))


def all_pods(snapshot: Snapshot) -> Iterator[tuple[Workload, Pod]]:
    for workload in snapshot.workloads:
        for pod in workload.pods:
            yield workload, pod


class Tree:
    """The projects by name, with the ancestors of each. An unknown parent counts as none."""

    def __init__(self, projects: Iterable[Project]) -> None:
        self.projects = {project.name: project for project in projects}
        self.models = {bounds.model for project in self.projects.values() for bounds in project.gpu_models}
        self.lineage = {name: self._climb(name) for name in self.projects}
        self.children: dict[str | None, list[str]] = {None: []}
        for name, lineage in self.lineage.items():
            self.children.setdefault(lineage[1] if len(lineage) > 1 else None, []).append(name)

    def quota(self, name: str) -> tuple[int | None, int | None, int | None]:
        project = self.projects[name]
        return project.quota_gpu_milli, project.quota_cpu_milli, project.quota_memory_bytes

    def limit(self, name: str) -> tuple[int | None, int | None, int | None]:
        project = self.projects[name]
        return project.limit_gpu_milli, project.limit_cpu_milli, project.limit_memory_bytes

    def model_quota(self, name: str, model: str) -> int:
        """Return a project's own quota for the model, or else the sum of its children's."""
        for bounds in self.projects[name].gpu_models:
            if bounds.model == model and bounds.quota_gpu_milli is not None:
                return bounds.quota_gpu_milli
        return sum(self.model_quota(child, model) for child in self.children.get(name, ()))

    def sides(self, ours: str, theirs: str) -> tuple[str | None, str | None]:
        """Return the two ancestors that compete with each other: children of the same department, or roots."""
        for mine, other in zip(reversed(self.lineage[ours]), reversed(self.lineage[theirs]), strict=False):
            if mine != other:
                return mine, other
        return None, None

    def nearest(self, name: str, field: str) -> int:
        """Return the first value of the field on the way to the root; 0 if there is none."""
        values = (getattr(self.projects[ancestor], field) for ancestor in self.lineage[name])
        return next((value for value in values if value is not None), 0)

    def _climb(self, name: str) -> tuple[str, ...]:
        way = [name]
        parent = self.projects[name].parent
        while parent is not None and parent in self.projects and parent not in way:
            way.append(parent)
            parent = self.projects[parent].parent
        return tuple(way)


def within(amounts: Amounts, bounds: tuple[int | None, ...], requested: Amounts | None = None) -> bool:
    """Return whether each resource, or each requested one if `requested` is given, is at most its bound. None:
    unbounded.
    """
    return all(
        bound is None or amount <= bound
        for resource, (amount, bound) in enumerate(zip(amounts, bounds, strict=True))
        if requested is None or requested[resource]
    )


def held_by_project(
    tree: Tree, pods: Iterable[tuple[Workload, Pod]], *, only_firm: bool = False
) -> dict[str, Amounts]:
    """Return the use of these pods by project and department; with `only_firm`, only that of non-preemptible pods."""
    held = dict.fromkeys(tree.projects, NOTHING)
    for workload, pod in pods:
        if only_firm and workload.preemptible:
            continue
        for name in tree.lineage.get(workload.project, ()):
            held[name] = add(held[name], pod.request.amounts)
    return held


def part_milli(node: Node, request: Request) -> int:
    """Return the part of each of its devices that the request takes on this node, in thousandths."""
    if request.gpu_memory_mib:
        if not node.gpu_memory_mib:
            return DEVICE_MILLI
        return -(-DEVICE_MILLI * request.gpu_memory_mib // node.gpu_memory_mib)
    return request.gpu_portion_milli or DEVICE_MILLI


def device_count(request: Request) -> int:
    return request.shared_devices if request.is_shared else request.gpu_count


def admits(node: Node, pod: Pod, workload: Workload, project: Project | None) -> bool:
    """Return whether Kubernetes and the project's node types allow the pod on the node, apart from free capacity."""
    if not node.schedulable or node.unhealthy:
        return False
    types = () if project is None else project.train_node_types
    if project is not None and workload.interactive:
        types = project.interactive_node_types
    if types and node.node_type not in types:
        return False
    constraints = pod.constraints
    if any(_label(node, key) != value for key, value in constraints.node_selector):
        return False
    if constraints.node_terms and not any(
        all(_matches(node, requirement) for requirement in term) for term in constraints.node_terms
    ):
        return False
    for taint in node.taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(
            (not toleration.effect or toleration.effect == taint.effect)
            and (
                toleration.operator == "Exists"
                if not toleration.key
                else toleration.key == taint.key
                and (toleration.operator == "Exists" or toleration.value == taint.value)
            )
            for toleration in constraints.tolerations
        ):
            return False
    return True


def _label(node: Node, key: str) -> str | None:
    """Return the value of the label. A node without a label of its host name has the node's name there."""
    is_name = key in ("kubernetes.io/hostname", "metadata.name")
    return node.labels.get(key, node.name if is_name else None)


def _matches(node: Node, requirement: LabelRequirement) -> bool:
    value = _label(node, requirement.key)
    if requirement.operator == "In":
        return value in requirement.values
    if requirement.operator == "NotIn":
        return value not in requirement.values
    if requirement.operator in ("Gt", "Lt"):
        sides = (value or "", *requirement.values)
        if len(sides) != 2 or not all(side.isdecimal() for side in sides):
            return False
        return (
            int(sides[0]) > int(sides[1]) if requirement.operator == "Gt" else int(sides[0]) < int(sides[1])
        )
    return (value is not None) == (requirement.operator == "Exists")


def gang_is_whole(workload: Workload, running: Iterable[Pod]) -> bool:
    """Return whether these pods are enough for the gang."""
    pods = list(running)
    if workload.groups is None:
        return len(pods) >= workload.min_member
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod.sub_group] = counts.get(pod.sub_group, 0) + 1
    return _is_satisfied(workload.groups, counts)


def _is_satisfied(group: SubGroup, counts: dict[str, int]) -> bool:
    if not group.children:
        return counts.get(group.name, 0) >= (1 if group.minimum is None else group.minimum)
    needed = len(group.children) if group.minimum is None else group.minimum
    return sum(_is_satisfied(child, counts) for child in group.children) >= needed


def next_chunk(workload: Workload) -> list[Pod]:
    """Return the pods that would start next together; empty if the gang lacks pods, or no pod is pending.

    The growth of workloads with sub-groups is not computed.
    """
    waiting, running = pending(workload), allocated(workload)
    if not waiting:
        return []
    if workload.groups is not None:
        if gang_is_whole(workload, running):
            return []
        return _missing(workload.groups, waiting, running) or []
    waiting.sort(key=lambda pod: (-pod.priority, pod.name, pod.id))
    missing = max(0, workload.min_member - len(running))
    return waiting[: missing or 1] if missing <= len(waiting) else []


def _missing(group: SubGroup, waiting: list[Pod], running: list[Pod]) -> list[Pod] | None:
    if not group.children:
        mine = [pod for pod in waiting if pod.sub_group == group.name]
        have = sum(pod.sub_group == group.name for pod in running)
        missing = max(0, (1 if group.minimum is None else group.minimum) - have)
        return mine[:missing] if missing <= len(mine) else None
    parts = [part for child in group.children if (part := _missing(child, waiting, running)) is not None]
    needed = len(group.children) if group.minimum is None else group.minimum
    if len(parts) < needed:
        return None
    return [pod for part in sorted(parts, key=len)[:needed] for pod in part]


def order_in_project(workload: Workload) -> tuple[int, int, str, str]:
    """Return the sort key of workloads within a project: priority, then age, then name."""
    return (-workload.priority, workload.created_at_us, workload.name, workload.id)
