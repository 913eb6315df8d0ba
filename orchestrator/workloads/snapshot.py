"""From the objects in the cluster to the planner's snapshot. Pure: objects in, snapshot out.

A workload is the pods of one namespace that share a controlling owner; a bare pod is a workload of one. Its age is the
owner's, so an evicted job keeps its place in the queue. Kubernetes' timestamps count whole seconds: workloads made
within about the same second are put in order by the time that `submit` wrote down.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.cluster.objects import Namespace, Node, Object, Pod, Project
from orchestrator.cluster.quantity import cpu_milli, gpu_milli, memory_bytes, parse_time
from orchestrator.errors import UsageError
from orchestrator.names import (
    GPU_DEVICES_ANNOTATION,
    GPU_MEMORY_LABEL,
    INTERACTIVE,
    MIN_MEMBER_ANNOTATION,
    NODE_TYPE_LABEL,
    PREEMPTIBLE_ANNOTATION,
    PROJECT_LABEL,
    SCHEDULER_NAME,
    SUBMITTED_AT_ANNOTATION,
    TYPE_LABEL,
    WORKLOAD_LABEL,
)
from orchestrator.planner import model
from orchestrator.workloads.health import node_health
from orchestrator.workloads.request import (
    NODE_NAME_LABEL,
    UnreadableRequest,
    pod_constraints,
    pod_request,
    resource_request,
)
from orchestrator.workloads.submission import parse_duration_seconds

_SECOND_US = 1_000_000
_FINISHED = ("Succeeded", "Failed")
_DEFAULT_SETTINGS = model.Settings()


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


@dataclass(frozen=True, slots=True)
class Reading:
    """The snapshot, and for each pod or project that could not be read (by uid or name) the reason in one line."""

    snapshot: model.Snapshot
    unreadable_pods: Mapping[str, str]
    unreadable_projects: Mapping[str, str]


def read(observed: Observed) -> Reading:
    """Build the planner's snapshot. What cannot be read is left out and named."""
    return Reader().read(observed)


class Reader:
    """Builds snapshots one after the other; what did not change since the last one is not read again.

    Kubernetes does not keep when a gang lost a member, so the first reading that shows it sets `stale_since_us`.
    """

    def __init__(self, settings: model.Settings = _DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._memory = _Memory()

    def read(self, observed: Observed) -> Reading:
        """Build the planner's snapshot. What cannot be read is left out and named."""
        memory = _Memory()
        unreadable_pods: dict[str, str] = {}
        unreadable_projects: dict[str, str] = {}
        projects = []
        for each in observed.projects.values():
            try:
                projects.append(self._project(memory, each))
            except ValueError as error:
                unreadable_projects[each.metadata.name] = str(error)
        by_owner, foreign, succeeded = _sorted_out(observed)
        reader = _WorkloadReader(observed, succeeded, unreadable_pods, self._memory, memory)
        workloads = [reader.read(uid, by_owner[uid]) for uid in sorted(by_owner)]
        nodes = [
            self._node(memory, node, foreign.get(node.metadata.name, []))
            for node in sorted(observed.nodes.values(), key=lambda each: each.metadata.name)
        ]
        self._memory = memory
        snapshot = model.Snapshot(
            tuple(nodes),
            tuple(projects),
            tuple(each for each in workloads if each is not None),
            now_us=observed.now_us,
            settings=self._settings,
        )
        return Reading(snapshot, unreadable_pods, unreadable_projects)

    def _project(self, memory: "_Memory", project: Project) -> model.Project:
        known = self._memory.projects.get(project.metadata.name)
        if known is None or known[0] is not project:
            made = planner_project(project)
            if known is not None and known[1] == made:  # its status alone has changed
                made = known[1]
            known = (project, made)
        memory.projects[project.metadata.name] = known
        return known[1]

    def _node(self, memory: "_Memory", node: Node, foreign: list[Pod]) -> model.Node:
        key = node.metadata.uid or node.metadata.name
        known = self._memory.nodes.get(key)
        if known is None or known[0] is not node or known[1] != foreign:
            known = (node, foreign, planner_node(node, foreign))
        memory.nodes[key] = known
        return known[2]


@dataclass(slots=True)
class _Memory:
    """What was read last time, and what it was read from. Objects of the caches never change, so identity tells."""

    pods: dict[str, tuple[Pod, Assumption | None, bool, model.Pod]] = field(default_factory=dict)
    workloads: dict[str, tuple[tuple[object, ...], model.Workload]] = field(default_factory=dict)
    nodes: dict[str, tuple[Node, list[Pod], model.Node]] = field(default_factory=dict)
    projects: dict[str, tuple[Project, model.Project]] = field(default_factory=dict)


def _sorted_out(observed: Observed) -> tuple[dict[str, list[Pod]], dict[str, list[Pod]], set[str]]:
    """Unfinished pods that are ours, by owner; those of other schedulers, by node; owners with a pod that succeeded."""
    by_owner: dict[str, list[Pod]] = {}
    foreign: dict[str, list[Pod]] = {}
    succeeded: set[str] = set()
    for pod in observed.pods.values():
        if pod.status.phase in _FINISHED:
            if pod.status.phase == "Succeeded":
                succeeded.add(owner_uid(pod))
            continue
        if pod.spec.scheduler_name != SCHEDULER_NAME:
            if pod.spec.node_name:
                foreign.setdefault(pod.spec.node_name, []).append(pod)
        elif _belongs(pod, observed):
            by_owner.setdefault(owner_uid(pod), []).append(pod)
    return by_owner, foreign, succeeded


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


def _belongs(pod: Pod, observed: Observed) -> bool:
    """Whether the pod waits for a node or holds one; a pending pod that is deleted or gated does neither."""
    if pod.spec.node_name or pod.metadata.uid in observed.assumed:
        return True
    return pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates


class _WorkloadReader:
    """Turns the pods of one owner into a workload."""

    def __init__(
        self,
        observed: Observed,
        succeeded: set[str],
        unreadable: dict[str, str],
        before: _Memory,
        memory: _Memory,
    ) -> None:
        self._observed = observed
        self._succeeded = succeeded
        self._unreadable = unreadable
        self._before = before
        self._memory = memory
        self._project_of = {
            each.metadata.name: each.metadata.labels.get(PROJECT_LABEL, "")
            for each in observed.namespaces.values()
        }

    def read(self, uid: str, pods: list[Pod]) -> model.Workload | None:
        if len(pods) > 1:
            pods.sort(key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))
        readable: list[tuple[Pod, model.Pod]] = []
        for pod in pods:
            try:
                readable.append((pod, self._remembered(pod)))
            except UnreadableRequest as error:
                self._unreadable[pod.metadata.uid] = str(error)
        if not readable:
            return None
        project = self._project_of.get(readable[0][0].metadata.namespace, "")
        key = (
            project,
            self._owner(uid),
            uid in self._succeeded,
            *(part for pair in readable for part in pair),
        )
        known = self._before.workloads.get(uid)
        if known is None or len(known[0]) != len(key) or not all(map(operator.is_, known[0], key)):
            known = (key, self._workload(uid, readable, project))
        self._memory.workloads[uid] = known
        return known[1]

    def _workload(self, uid: str, readable: Sequence[tuple[Pod, model.Pod]], project: str) -> model.Workload:
        first = readable[0][0]
        interactive = first.metadata.labels.get(TYPE_LABEL) == INTERACTIVE
        started = [_time_us(pod.status.start_time) for pod, _ in readable if pod.status.start_time]
        members = self._min_member(first)
        if uid in self._succeeded:  # a job that comes to its end has fewer pods than its gang had
            members = min(members, len(readable))
        return model.Workload(
            id=uid,
            name=first.metadata.labels.get(WORKLOAD_LABEL, first.metadata.name),
            project=project,
            priority=first.spec.priority,
            preemptible=_preemptible(first, interactive=interactive),
            created_at_us=self._created_at_us(uid, first),
            pods=tuple(pod for _, pod in readable),
            min_member=members,
            interactive=interactive,
            started_at_us=min(started, default=0),
            stale_since_us=self._stale_since_us(uid, readable, members),
            waiting_since_us=max(
                (
                    _time_us(pod.metadata.creation_timestamp)
                    for pod, each in readable
                    if each.state is model.PodState.PENDING
                ),
                default=0,
            ),
        )

    def _stale_since_us(self, uid: str, readable: Sequence[tuple[Pod, model.Pod]], members: int) -> int:
        running = sum(pod.state is model.PodState.ALLOCATED for _, pod in readable)
        if not 0 < running < members:
            return 0
        known = self._before.workloads.get(uid)
        return (known[1].stale_since_us if known else 0) or self._observed.now_us

    def _owner(self, uid: str) -> Object | None:
        for owners in self._observed.owners:
            if uid in owners:
                return owners[uid]
        return None

    def _remembered(self, pod: Pod) -> model.Pod:
        uid = pod.metadata.uid
        assumed = self._observed.assumed.get(uid)
        evicted = uid in self._observed.evicted
        known = self._before.pods.get(uid)
        if known is None or known[0] is not pod or known[1] is not assumed or known[2] is not evicted:
            known = (pod, assumed, evicted, self._pod(pod, assumed, evicted=evicted))
        self._memory.pods[uid] = known
        return known[3]

    def _pod(self, pod: Pod, assumed: Assumption | None, *, evicted: bool) -> model.Pod:
        uid = pod.metadata.uid
        node = pod.spec.node_name or (assumed.node if assumed else None)
        state = model.PodState.PENDING
        devices: tuple[int, ...] = ()
        if node:
            releasing = pod.metadata.deletion_timestamp is not None or evicted
            state = model.PodState.RELEASING if releasing else model.PodState.ALLOCATED
            devices = assumed.devices if assumed and not pod.spec.node_name else devices_of(pod)
        return model.Pod(
            id=uid,
            name=pod.metadata.name,
            request=pod_request(pod),
            constraints=pod_constraints(pod),
            state=state,
            node=node,
            devices=devices,
            max_runtime_seconds=pod.spec.active_deadline_seconds,
            ends_by_us=_ends_by_us(pod) if node else 0,
        )

    def _min_member(self, pod: Pod) -> int:
        text = pod.metadata.annotations.get(MIN_MEMBER_ANNOTATION, "1")
        return int(text) if text.isdecimal() and int(text) > 0 else 1

    def _created_at_us(self, uid: str, first: Pod) -> int:
        owner = self._owner(uid)
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
