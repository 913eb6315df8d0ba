"""The conversion of nodes, pods and owners to the planner's snapshot. Pure.

The pods with the same topmost owner (`owners`) are one workload; a pod without an owner is a workload of one pod. A
workload has the age of its owner, so an evicted job keeps its queue position. Kubernetes' timestamps are whole seconds.
A more precise time of `muster submit` counts if it is within a second of the timestamp.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.cluster.objects import Namespace, Node, Object, Pod, PodDisruptionBudget, Project
from orchestrator.cluster.quantity import cpu_milli, memory_bytes, time_us, whole_count
from orchestrator.names import (
    INTERACTIVE,
    NODE_TYPE_LABEL,
    PREEMPTIBLE_ANNOTATION,
    PRIORITY_ANNOTATION,
    PRIORITY_CLASSES,
    QUEUED_SINCE_ANNOTATION,
    SUBMITTED_AT_ANNOTATION,
    TYPE_LABEL,
    WORKLOAD_LABEL,
)
from orchestrator.observe.claim_reader import DynamicObject, PodClaims
from orchestrator.observe.foreign_request import foreign_request
from orchestrator.observe.gangs import required
from orchestrator.observe.grace_periods import MAX_GRACE_SECONDS, terminates
from orchestrator.observe.health import (
    gives_gpus_twice,
    gpu_memory_mib,
    host_fault,
    node_health,
    refuses_pods,
)
from orchestrator.observe.holdings import held_request
from orchestrator.observe.node_terms import Terms, both
from orchestrator.observe.nominations import nomination_of
from orchestrator.observe.owners import Chain
from orchestrator.observe.pod_status import ends_by_us, start_fields
from orchestrator.observe.pod_traits import bound_traits, in_order, pod_traits
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.observe.request import (
    MAX_AMOUNT,
    NO_SCALARS,
    NODE_NAME_LABEL,
    Held,
    amount_of_scalar,
    devices_of,
    gpu_devices,
    has_gpus_of_plugin,
    is_admitted,
    pod_constraints,
    readable_request,
)
from orchestrator.observe.stuck_pods import PodProblem
from orchestrator.observe.sub_groups import grouping, sub_group
from orchestrator.observe.unreadable import SkippedObject
from orchestrator.observe.volumes import StorageObject
from orchestrator.planner import model
from orchestrator.planner.gangs import has_gang


@dataclass(frozen=True, slots=True)
class Observed:
    """The content of the caches, by uid.

    `now_us` is the time of the decision; 0: rules about time do not apply.
    """

    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    namespaces: Mapping[str, Namespace]
    projects: Mapping[str, Project]
    owners: Sequence[Mapping[str, Object]] = ()
    now_us: int = 0
    budgets: Mapping[str, PodDisruptionBudget] = field(default_factory=dict)
    storage: Sequence[StorageObject] = ()
    dynamic: Sequence[DynamicObject] = ()


@dataclass(frozen=True, slots=True)
class Hints:
    """Results of earlier decisions and requests that are in no object.

    `put_off` has, by pod uid, the reason why a pod is put off. `avoided` has, by pod uid, the node that the pod must
    not get in this decision. `left_over` are the ids of workloads that the last decision did not reach.
    """

    put_off: Mapping[str, str] = field(default_factory=dict)
    avoided: Mapping[str, str] = field(default_factory=dict)
    left_over: tuple[str, ...] = ()


NO_HINTS: Final = Hints()


@dataclass(frozen=True, slots=True)
class Reading:
    """The snapshot, and the reasons of unreadable pods (by uid) and unreadable projects (by name).

    `skipped` has these and all other skipped objects, such as nodes and pods of other schedulers. `problems` has, by
    uid, the stuck pods and the pods on nodes that are not ready.
    """

    snapshot: model.Snapshot
    unreadable_pods: Mapping[str, str]
    unreadable_projects: Mapping[str, str]
    skipped: tuple[SkippedObject, ...] = ()
    problems: Mapping[str, PodProblem] = field(default_factory=dict)


def owner_uid(pod: Pod) -> str:
    """Return the uid of the pod's controller, or the pod's own uid."""
    for owner_reference in pod.metadata.owner_references:
        if owner_reference.controller:
            return owner_reference.uid
    return pod.metadata.uid


def planner_node(
    node: Node,
    held: Iterable[Held] = (),
    foreign_devices: tuple[int, ...] = (),
    published: PublishedGpus | None = None,
) -> model.Node:
    """Return the node in the planner's terms. `held` and `foreign_devices` are the use by pods of other schedulers.

    `published` are the GPUs that a DRA driver publishes for the node. Raises ValueError if its resources cannot be
    read.
    """
    allocatable = node.status.allocatable
    health = node_health(node, published)
    fault, fault_since_us = host_fault(node)
    labels = {**node.metadata.labels, NODE_NAME_LABEL: node.metadata.name}
    if published is not None and published.model:
        labels.setdefault(model.GPU_MODEL_LABEL, published.model)
    cpu = _amount(allocatable, "cpu", cpu_milli)
    memory = _amount(allocatable, "memory", memory_bytes)
    scalars = _scalars(allocatable)
    foreign = list(held)
    return model.Node(
        name=node.metadata.name,
        gpu_count=health.gpu_count,
        cpu_milli=cpu,
        memory_bytes=memory,
        pod_slots=whole_count(str(allocatable.get("pods", 110))),
        labels=labels,
        taints=tuple(model.Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        schedulable=not health.unhealthy
        and not node.spec.unschedulable
        and not gives_gpus_twice(node, published)
        and not refuses_pods(node, published),
        node_type=node.metadata.labels.get(NODE_TYPE_LABEL, ""),
        foreign=foreign_request(foreign, len(foreign_devices), cpu, memory, scalars),
        foreign_pods=len(foreign),
        foreign_devices=foreign_devices,
        gpu_memory_mib=gpu_memory_mib(node, published),
        unhealthy=health.unhealthy,
        unhealthy_since_us=health.since_us,
        unhealthy_gpus=health.unhealthy_gpus,
        lost_gpus=health.lost_gpus,
        published_gpus=() if published is None else published.ids,
        scalars=scalars,
        foreign_traits=in_order(use.traits for use in foreign),
        host_fault=fault,
        host_fault_since_us=fault_since_us,
    )


def _scalars(allocatable: Mapping[str, str | int]) -> dict[str, int]:
    """Return the node's resources other than GPUs, CPU, memory and pods. A missing resource counts as 0."""
    amounts = {
        name: amount_of_scalar(name, str(allocatable[name]))
        for name in sorted(allocatable)
        if name not in NO_SCALARS
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _amount(allocatable: Mapping[str, str | int], resource: str, parse: Callable[[str], int]) -> int:
    amount = parse(str(allocatable.get(resource, 0)))
    if not 0 <= amount <= MAX_AMOUNT:
        raise ValueError(f"it says that it has {amount} of {resource}: at most {MAX_AMOUNT} is believed")
    return amount


def belongs(pod: Pod) -> bool:
    """Return whether the pod is bound, or is pending and neither deleted nor gated."""
    if pod.spec.node_name:
        return True
    return pod.metadata.deletion_timestamp is None and not pod.spec.scheduling_gates


def planner_pod(
    pod: Pod,
    request: model.Request,
    *,
    levels: tuple[str, ...] = (),
    volumes: Terms = (),
    part: str = "",
    devices: tuple[int, ...] | None = None,
    claims: PodClaims | None = None,
    stuck: bool = False,
    max_checkpoint_grace_seconds: int = MAX_GRACE_SECONDS,
) -> model.Pod:
    """Return the pod in the planner's terms. Raises UnreadableRequest.

    `request` is the pod's request without the devices of its ResourceClaims. `levels` are the cluster's topology
    levels. `volumes` are the terms of its volumes. `part` is the part of the gang to which its controller assigns it.
    `devices` replaces the GPUs in its annotation (None keeps them). `claims` are its ResourceClaims.
    """
    node, state = pod.spec.node_name or None, model.PodState.PENDING
    request = request if claims is None else claims.request
    terms = volumes if claims is None else both(volumes, claims.terms)
    held: tuple[int, ...] = ()
    if node:
        state = _state(pod, max_checkpoint_grace_seconds, stuck=stuck)
        if claims is not None and claims.keys and not has_gpus_of_plugin(pod):
            held = claims.devices
        elif devices is not None:
            held, request = devices, held_request(request, devices)
        elif request.gpu_count or request.is_shared:
            held = gpu_devices(pod)
    nominated = None if state is model.PodState.ALLOCATED else nomination_of(pod)
    return model.Pod(
        id=pod.metadata.uid,
        name=pod.metadata.name,
        request=request,
        constraints=pod_constraints(pod, terms),
        state=state,
        node=node,
        devices=held,
        sub_group=sub_group(pod, levels) or part,
        stuck=stuck,
        max_runtime_seconds=pod.spec.active_deadline_seconds,
        ends_by_us=ends_by_us(pod) if node else 0,
        nominated_node=nominated.node if nominated else None,
        nominated_devices=nominated.devices if nominated else (),
        claims=() if claims is None else claims.keys,
        extended_claim=None if claims is None else claims.extended,
        **start_fields(pod),
        traits=pod_traits(pod),
    )


def held_pod(
    pod: Pod,
    *,
    devices: tuple[int, ...] | None = None,
    claims: PodClaims | None = None,
    stuck: bool = False,
    max_checkpoint_grace_seconds: int = MAX_GRACE_SECONDS,
) -> model.Pod:
    """Return a bound pod with its devices and without constraints, even if it cannot be read.

    `devices`, `claims` and `stuck` are as in `planner_pod`.
    """
    held = devices
    if claims is not None and not has_gpus_of_plugin(pod):
        held = claims.devices
    elif held is None:
        held = devices_of(pod)
    return model.Pod(
        id=pod.metadata.uid,
        name=pod.metadata.name,
        request=held_request(readable_request(pod), held) if claims is None else claims.request,
        claims=() if claims is None else claims.keys,
        state=_state(pod, max_checkpoint_grace_seconds, stuck=stuck),
        node=pod.spec.node_name or None,
        devices=held,
        stuck=stuck,
        **start_fields(pod),
        traits=bound_traits(pod),
    )


def _state(pod: Pod, max_checkpoint_grace_seconds: int, *, stuck: bool) -> model.PodState:
    leaves = stuck or terminates(pod, max_checkpoint_grace_seconds)
    return model.PodState.RELEASING if leaves else model.PodState.ALLOCATED


@dataclass(frozen=True, slots=True)
class Together:
    """The pods of one workload, oldest first, as Kubernetes object and planner object, with facts about the workload.

    `chain` has its owners, `succeeded` its succeeded pods. `stale_since_us` is the time since which the gang is below
    its minimum. It is ignored if the gang is complete.
    """

    uid: str
    pods: Sequence[tuple[Pod, model.Pod]]
    chain: Chain
    project: str
    succeeded: Sequence[Pod]
    stale_since_us: int


def planner_workload(together: Together, levels: tuple[str, ...] = ()) -> model.Workload:
    """Return the workload in the planner's terms. `levels` are the cluster's topology levels."""
    first = together.pods[0][0]
    interactive = first.metadata.labels.get(TYPE_LABEL) == INTERACTIVE
    members, groups = required(together.chain, together.pods, together.succeeded, levels)
    running = sum(pod.state is model.PodState.ALLOCATED for _, pod in together.pods)
    workload = model.Workload(
        id=together.uid,
        name=first.metadata.labels.get(WORKLOAD_LABEL, together.chain.name),
        project=together.project,
        priority=priority(together.chain.owner, first),
        preemptible=_may_be_taken_back(together),
        created_at_us=created_at_us(together.chain.owner, [pod for pod, _ in together.pods]),
        pods=tuple(pod for _, pod in together.pods),
        min_member=members,
        interactive=interactive,
        started_at_us=started_at_us(pod for pod, _ in together.pods),
        groups=groups,
        topology=grouping(first.metadata.annotations, levels).topology,
        waiting_since_us=max(
            (
                time_us(pod.metadata.creation_timestamp)
                for pod, planned in together.pods
                if planned.state is model.PodState.PENDING
            ),
            default=0,
        ),
    )
    is_stale = running > 0 and not has_gang(workload)
    return replace(workload, stale_since_us=together.stale_since_us) if is_stale else workload


def held_workload(together: Together) -> model.Workload:
    """Return an unreadable workload with only its bound pods, which keep their devices.

    The workload counts for its project, and can be evicted if its pods are preemptible. Its gang is not read.
    """
    first = together.pods[0][0]
    interactive = first.metadata.labels.get(TYPE_LABEL) == INTERACTIVE
    return model.Workload(
        id=together.uid,
        name=first.metadata.labels.get(WORKLOAD_LABEL, together.chain.name),
        project=together.project,
        priority=priority(together.chain.owner, first),
        preemptible=_may_be_taken_back(together),
        created_at_us=created_at_us(together.chain.owner, [pod for pod, _ in together.pods]),
        pods=tuple(
            replace(planned, constraints=model.Constraints(), sub_group="") for _, planned in together.pods
        ),
        interactive=interactive,
        started_at_us=started_at_us(pod for pod, _ in together.pods),
    )


def started_at_us(pods: Iterable[Pod]) -> int:
    """Return the earliest start of a pod, in microseconds; 0 if none has started."""
    return min((time_us(pod.status.start_time) for pod in pods if pod.status.start_time), default=0)


def created_at_us(owner: Object | None, pods: Sequence[Pod]) -> int:
    """Return the creation time of a workload for the queue order, in microseconds. `pods` are the oldest first."""
    first = pods[0]
    metadata = first.metadata if owner is None else owner.metadata
    created = time_us(metadata.creation_timestamp)
    submitted = time_us(first.metadata.annotations.get(SUBMITTED_AT_ANNOTATION, ""))
    created = submitted if -model.SECOND_US <= submitted - created < model.SECOND_US else created
    # Users can write the annotation. A time before the creation does not count. A requeue creates the pods anew, so a
    # time after the newest pod, perhaps in the future, counts as that of this pod.
    queued_since = time_us(metadata.annotations.get(QUEUED_SINCE_ANNOTATION))
    return max(created, min(queued_since, max(time_us(pod.metadata.creation_timestamp) for pod in pods)))


def priority(owner: Object | None, first: Pod) -> int:
    """Return the priority of a workload: that of its annotation, if this is a class of muster, or that of its pods."""
    name = "" if owner is None else owner.metadata.annotations.get(PRIORITY_ANNOTATION, "")
    return PRIORITY_CLASSES.get(name, first.spec.priority)


def _may_be_taken_back(together: Together) -> bool:
    """Return whether a pod is declared preemptible, or was bound by another scheduler without a check of the quota."""
    return any(
        is_preemptible(pod) or (pod.spec.node_name and not is_admitted(pod)) for pod, _ in together.pods
    )


def is_preemptible(pod: Pod) -> bool:
    """Return whether the pod declares that it can be evicted for other workloads. The default depends on its type."""
    text = pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION)
    return pod.metadata.labels.get(TYPE_LABEL) != INTERACTIVE if text is None else text == "true"
