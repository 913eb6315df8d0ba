"""From the objects in the cluster to the planner's snapshot. Pure: objects in, snapshot out.

A workload is the pods of one namespace that share a controlling owner; a bare pod is a workload of one. Its age is the
owner's, so an evicted job keeps its place in the queue. Kubernetes' timestamps count whole seconds: workloads made
within about the same second are put in order by the time that `submit` wrote down.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.cluster.objects import Namespace, Node, Object, Pod, PodDisruptionBudget, Project
from orchestrator.cluster.quantity import cpu_milli, gpu_milli, memory_bytes, parse_time
from orchestrator.errors import UsageError
from orchestrator.names import (
    GPU_DEVICES_ANNOTATION,
    GPU_MEMORY_LABEL,
    INTERACTIVE,
    MIN_MEMBER_ANNOTATION,
    NODE_TYPE_LABEL,
    PREEMPTIBLE_ANNOTATION,
    SUBMITTED_AT_ANNOTATION,
    TYPE_LABEL,
    WORKLOAD_LABEL,
)
from orchestrator.planner import model
from orchestrator.planner.gangs import has_gang
from orchestrator.workloads.grouping import grouping, sub_group
from orchestrator.workloads.health import node_health
from orchestrator.workloads.node_terms import Terms
from orchestrator.workloads.request import (
    NODE_NAME_LABEL,
    pod_constraints,
    pod_request,
    resource_request,
)
from orchestrator.workloads.values import parse_duration_seconds
from orchestrator.workloads.volumes import StorageObject

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Assumption:
    """A binding that was made but has not been seen on the watch yet."""

    node: str
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What the caches hold, by uid, and what is known beyond them: bindings and evictions just made, by pod uid.

    `now_us` is the time of the decision; 0: rules about time do not apply.
    """

    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    namespaces: Mapping[str, Namespace]
    projects: Mapping[str, Project]
    owners: Sequence[Mapping[str, Object]] = ()
    assumed: Mapping[str, Assumption] = field(default_factory=dict)
    evicted: frozenset[str] = frozenset()
    now_us: int = 0
    budgets: Mapping[str, PodDisruptionBudget] = field(default_factory=dict)
    storage: Sequence[StorageObject] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The snapshot, and for each pod or project that could not be read (by uid or name) the reason in one line."""

    snapshot: model.Snapshot
    unreadable_pods: Mapping[str, str]
    unreadable_projects: Mapping[str, str]


def owner_uid(pod: Pod) -> str:
    """What makes pods one workload: the uid of the controlling owner, or the pod's own."""
    for each in pod.metadata.owner_references:
        if each.controller:
            return each.uid
    return pod.metadata.uid


def planner_project(project: Project) -> model.Project:
    """The project in the planner's terms. Raises ValueError when a quantity cannot be meant."""
    spec, gpu = project.spec, project.spec.gpu
    cpu, memory = spec.cpu, spec.memory
    quota = gpu_milli(gpu.quota)
    return model.Project(
        name=project.metadata.name,
        quota_gpu_milli=quota,
        limit_gpu_milli=None if gpu.limit is None else gpu_milli(gpu.limit),
        over_quota_weight=quota if gpu.over_quota_weight is None else gpu_milli(gpu.over_quota_weight),
        priority=spec.priority,
        parent=spec.parent,
        created_at_us=_time_us(project.metadata.creation_timestamp),
        train_node_types=tuple(spec.node_affinity.train),
        interactive_node_types=tuple(spec.node_affinity.interactive),
        quota_cpu_milli=_bound(cpu.quota, cpu_milli),
        limit_cpu_milli=_bound(cpu.limit, cpu_milli),
        cpu_over_quota_weight=1 if cpu.over_quota_weight is None else cpu.over_quota_weight,
        quota_memory_bytes=_bound(memory.quota, memory_bytes),
        limit_memory_bytes=_bound(memory.limit, memory_bytes),
        memory_over_quota_weight=1 if memory.over_quota_weight is None else memory.over_quota_weight,
        reclaim_min_runtime_seconds=_seconds("reclaimMinRuntime", spec.reclaim_min_runtime),
        preempt_min_runtime_seconds=_seconds("preemptMinRuntime", spec.preempt_min_runtime),
        moves_non_preemptible=spec.non_preemptible_on_unhealthy == "Move",
        gpu_models=tuple(
            model.GpuModelBounds(
                name,
                None if bounds.quota is None else gpu_milli(bounds.quota),
                None if bounds.limit is None else gpu_milli(bounds.limit),
            )
            for name, bounds in sorted(gpu.models.items())
        ),
    )


def _bound(quantity: str | int | None, parse: Callable[[str], int]) -> int | None:
    return None if quantity is None else parse(str(quantity))


def _seconds(name: str, duration: str | None) -> int | None:
    try:
        return parse_duration_seconds(name, duration)
    except UsageError as error:
        raise ValueError(str(error)) from error


def planner_node(node: Node, foreign: Iterable[Pod] = ()) -> model.Node:
    """The node in the planner's terms, with what pods of other schedulers hold on it."""
    allocatable = node.status.allocatable
    health = node_health(node)
    held = [resource_request(pod) for pod in foreign]
    memory = node.metadata.labels.get(GPU_MEMORY_LABEL, "")
    return model.Node(
        name=node.metadata.name,
        gpu_count=health.gpu_count,
        cpu_milli=cpu_milli(str(allocatable.get("cpu", 0))),
        memory_bytes=memory_bytes(str(allocatable.get("memory", 0))),
        pod_slots=int(allocatable.get("pods", 110)),
        labels={**node.metadata.labels, NODE_NAME_LABEL: node.metadata.name},
        taints=tuple(model.Taint(each.key, each.value, each.effect) for each in node.spec.taints),
        schedulable=not health.unhealthy and not node.spec.unschedulable,
        node_type=node.metadata.labels.get(NODE_TYPE_LABEL, ""),
        foreign=model.Request(
            gpu_count=sum(each.gpu_count for each in held),
            cpu_milli=sum(each.cpu_milli for each in held),
            memory_bytes=sum(each.memory_bytes for each in held),
        ),
        foreign_pods=len(held),
        gpu_memory_mib=int(memory) if memory.isascii() and memory.isdecimal() else 0,
        unhealthy=health.unhealthy,
        unhealthy_since_us=health.since_us,
        unhealthy_gpus=health.unhealthy_gpus,
        lost_gpus=health.lost_gpus,
    )


def belongs(pod: Pod, assumed: Mapping[str, Assumption]) -> bool:
    """Whether the pod waits for a node or holds one; a pending pod that is deleted or gated does neither."""
    if pod.spec.node_name or pod.metadata.uid in assumed:
        return True
    return pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates


def planner_pod(
    pod: Pod,
    assumed: Assumption | None = None,
    *,
    evicted: bool = False,
    levels: tuple[str, ...] = (),
    volumes: Terms = (),
) -> model.Pod:
    """The pod in the planner's terms, with a binding or an eviction that is under way. Raises UnreadableRequest.

    `levels` are the cluster's levels of topology, `volumes` what the pod's volumes ask of its node.
    """
    node = pod.spec.node_name or (assumed.node if assumed else None)
    state = model.PodState.PENDING
    devices: tuple[int, ...] = ()
    if node:
        releasing = pod.metadata.deletion_timestamp is not None or evicted
        state = model.PodState.RELEASING if releasing else model.PodState.ALLOCATED
        devices = assumed.devices if assumed and not pod.spec.node_name else devices_of(pod)
    return model.Pod(
        id=pod.metadata.uid,
        name=pod.metadata.name,
        request=pod_request(pod),
        constraints=pod_constraints(pod, volumes),
        state=state,
        node=node,
        devices=devices,
        sub_group=sub_group(pod, levels),
        max_runtime_seconds=pod.spec.active_deadline_seconds,
        ends_by_us=_ends_by_us(pod) if node else 0,
    )


@dataclass(frozen=True, slots=True)
class Together:
    """The pods of one workload, oldest first, each with what it is to the planner, and what is known about them.

    `stale_since_us` is since when the gang is short of pods, if it is.
    """

    uid: str
    pods: Sequence[tuple[Pod, model.Pod]]
    owner: Object | None
    project: str
    has_succeeded: bool
    stale_since_us: int


def planner_workload(together: Together, levels: tuple[str, ...] = ()) -> model.Workload:
    """The workload in the planner's terms. `levels` are the cluster's levels of topology."""
    first = together.pods[0][0]
    interactive = first.metadata.labels.get(TYPE_LABEL) == INTERACTIVE
    started = [_time_us(pod.status.start_time) for pod, _ in together.pods if pod.status.start_time]
    members = _min_member(first)
    if together.has_succeeded:  # a job that comes to its end has fewer pods than its gang had
        members = min(members, len(together.pods))
    running = sum(pod.state is model.PodState.ALLOCATED for _, pod in together.pods)
    asked = grouping(first.metadata.annotations, levels)
    groups = None if together.has_succeeded else asked.groups
    workload = model.Workload(
        id=together.uid,
        name=first.metadata.labels.get(WORKLOAD_LABEL, first.metadata.name),
        project=together.project,
        priority=first.spec.priority,
        preemptible=_preemptible(first, interactive=interactive),
        created_at_us=_created_at_us(together.owner, first),
        pods=tuple(pod for _, pod in together.pods),
        min_member=members,
        interactive=interactive,
        started_at_us=min(started, default=0),
        groups=groups,
        topology=asked.topology,
        waiting_since_us=max(
            (
                _time_us(pod.metadata.creation_timestamp)
                for pod, each in together.pods
                if each.state is model.PodState.PENDING
            ),
            default=0,
        ),
    )
    is_stale = running > 0 and not has_gang(workload)
    return replace(workload, stale_since_us=together.stale_since_us) if is_stale else workload


def _min_member(pod: Pod) -> int:
    text = pod.metadata.annotations.get(MIN_MEMBER_ANNOTATION, "1")
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def _created_at_us(owner: Object | None, first: Pod) -> int:
    metadata = first.metadata if owner is None else owner.metadata
    created = _time_us(metadata.creation_timestamp)
    submitted = _time_us(first.metadata.annotations.get(SUBMITTED_AT_ANNOTATION, ""))
    return submitted if -_SECOND_US <= submitted - created < _SECOND_US else created


def devices_of(pod: Pod) -> tuple[int, ...]:
    """The indices of the GPUs that a bound pod holds on its node; empty when none are written down."""
    text = pod.metadata.annotations.get(GPU_DEVICES_ANNOTATION, "")
    return tuple(int(part) for part in text.split(",") if part.isdecimal())


def _ends_by_us(pod: Pod) -> int:
    """When Kubernetes ends the pod at the latest, 0 when it may run for ever or has not started."""
    seconds, started_us = pod.spec.active_deadline_seconds, _time_us(pod.status.start_time)
    return 0 if seconds is None or not started_us else started_us + seconds * _SECOND_US


def _preemptible(pod: Pod, *, interactive: bool) -> bool:
    text = pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION)
    return not interactive if text is None else text == "true"


def _time_us(timestamp: str) -> int:
    if not timestamp:
        return 0
    try:
        return parse_time(timestamp)
    except ValueError:
        return 0
