"""Explains, in one line, why a job does not run, from the state of its pods and containers.

`list -o wide`, `get`, `explain`, the pages and the client show `waits_because`. Its first word is the reason that the
operator (`ClusterFull`), the kubelet (`ErrImagePull`) or the newest warning (`FailedMount`) gives, or one of these:

    SchedulingGated   pods that are not to be scheduled yet
    VolumeUnbound     the pod has a node, and a PersistentVolumeClaim of it has no volume
    NodeNotReady      the pod is on a node that is not ready, or is marked unhealthy
    Stuck             the pod has not ended after its grace period
    NodeDeleted       the pod is on a node that the cluster does not have any more
    Terminating       all pods are being deleted, and have not ended
    GpuNotReserved    the pod runs, but without the GPU of its fraction, because its node has no agent
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from orchestrator.cluster.objects import Event, Node, PersistentVolumeClaim, Pod
from orchestrator.cluster.pods import FINISHED, ContainerStateTerminated, ContainerStatus
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.wire import has_condition
from orchestrator.names import (
    ADMITTED_ANNOTATION,
    GPU_FRACTION_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GPU_UUIDS_ANNOTATION,
    STUCK_CONDITION,
)
from orchestrator.observe.stuck_pods import NODE_NOT_READY

MAX_MESSAGE: Final = 300
"""Maximum length of a shown message of a kubelet or runtime, in characters."""

NORMAL_WAITS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container waits although nothing is wrong."""

SCHEDULING_GATED: Final = "SchedulingGated"
VOLUME_UNBOUND: Final = "VolumeUnbound"
NODE_DELETED: Final = "NodeDeleted"
TERMINATING: Final = "Terminating"
GPU_NOT_RESERVED: Final = "GpuNotReserved"

_BACK_OFF: Final = "CrashLoopBackOff"
_MAX_NAMES: Final = 4


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The PVCs, events and nodes around the pods of a namespace; empty if they were not read.

    `claims` (the PVCs) and `nodes` are by name; the value of a deleted node is None. `events` begin with the oldest.
    """

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    events: Sequence[Event] = ()
    nodes: Mapping[str, Node | None] = field(default_factory=dict)


NOTHING_READ: Final = Surroundings()


class Obstacle(NamedTuple):
    """Why a pod does not run. If several pods have obstacles, the obstacle with the lowest `rank` is shown."""

    rank: int
    code: str
    message: str

    @property
    def text(self) -> str:
        """The reason and the message, separated by a colon."""
        return ": ".join(filter(None, (self.code, self.message)))


def waits_because(pods: Sequence[Pod], around: Surroundings = NOTHING_READ) -> str:
    """Return why pods of a job do not run, from the obstacle of lowest rank; empty if all pods run or have ended."""
    active = [pod for pod in pods if pod.status.phase not in FINISHED]
    staying = [pod for pod in active if pod.metadata.deletion_timestamp is None]
    if active and not staying:
        return f"{TERMINATING}: {_not_ended(active, around)}"
    obstacles = [found for pod in staying if (found := obstacle(pod, around)) is not None]
    if not obstacles:
        return ""
    first = min(obstacles, key=lambda found: found.rank)
    alike = sum(found.code == first.code for found in obstacles)
    if first.rank == _SCHEDULING or len(staying) == 1:
        return first.text
    return f"{first.text} ({alike} of {len(staying)} pods)"


_CONTAINER, _NODE, _SCHEDULING, _START, _GPU = range(5)
"""Ranks of obstacles: of a failing container, of the node, of a pod without a node, of a pod that has not started yet.
The last rank is that of a pod that runs without its GPU.
"""


def obstacle(pod: Pod, around: Surroundings = NOTHING_READ) -> Obstacle | None:
    """Return why one pod that has not ended does not run; None if it runs, or no reason is known."""
    if not pod.spec.node_name:
        message = not_scheduled(pod)
        return Obstacle(_SCHEDULING, "", message) if message else None
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    failing = next(filter(None, map(_failing, statuses)), None)
    return failing or _node_obstacle(pod, around) or _slow_start(pod, statuses, around) or without_gpu(pod)


def not_scheduled(pod: Pod) -> str:
    """Return why a pod has no node: its scheduling gates, or the reason that the operator wrote into its conditions.

    Empty if the pod has a node or no reason.
    """
    if pod.spec.node_name:
        return ""
    if names := [gate.name for gate in pod.spec.scheduling_gates]:
        return f"{SCHEDULING_GATED}: it has the scheduling gate{'s' * (len(names) > 1)} {_some(names)}"
    refused = (
        condition
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    )
    return next((condition.message or condition.reason for condition in refused), "")


def runs(pod: Pod, around: Surroundings = NOTHING_READ) -> bool:
    """Return whether the pod runs and has no obstacle but a missing GPU."""
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
        return False
    found = obstacle(pod, around)
    return found is None or found.rank == _GPU


def activity(job: str, pods: Sequence[Pod], around: Surroundings = NOTHING_READ) -> list[str]:
    """Return sentences about the pods that have a node."""
    placed = [pod for pod in pods if pod.spec.node_name and pod.status.phase not in FINISHED]
    staying = [pod for pod in placed if pod.metadata.deletion_timestamp is None]
    running = [pod for pod in staying if runs(pod, around)]
    lines = []
    if running:
        of = f" with {len(running)} of its {len(placed)} pods" if len(running) < len(placed) else ""
        lines.append(f"{job} runs{of} on {_nodes(running)}.")
        lines += [f"{found.text}." for found in map(without_gpu, running) if found is not None][:1]
    others = [pod for pod in staying if pod not in running]
    if others:
        because = waits_because(others, around) or "its containers are being created"
        lines.append(f"{job} is bound to {_nodes(others)} and does not run there: {because}.")
    if len(staying) < len(placed):
        terminating = [pod for pod in placed if pod not in staying]
        lines.append(f"{job} is terminating: {_not_ended(terminating, around)}.")
    if running and (count := restarts(running)):
        lines.append(f"Restarts of its containers: {count}.")
    return lines


def _nodes(pods: Sequence[Pod]) -> str:
    return _some(sorted({pod.spec.node_name for pod in pods}))


def restarts(pods: Sequence[Pod]) -> str:
    """Return a text about restarts in pods that have not ended: their number, and the end of the container that
    restarted last.
    """
    statuses = [
        status
        for pod in pods
        if pod.status.phase not in FINISHED
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ]
    count = sum(status.restart_count for status in statuses)
    if not count:
        return ""
    ended = [status.last_state.terminated for status in statuses if status.last_state.terminated]
    last = max(ended, key=lambda state: time_us(state.finished_at), default=None)
    return f"{count}{f', last {_ending(last)}' if last else ''}"


def last_exit(pods: Sequence[Pod]) -> str:
    """Return a text about the end of the youngest failed pod. Empty if no pod failed."""
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    if not failed:
        return ""
    pod = max(failed, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name))
    if pod.status.reason:
        return f"{pod.status.reason}: {_short(pod.status.message)}".removesuffix(": ")
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = status.state.terminated
        if ended is not None and ended.exit_code != 0:
            return f"container {status.name} ended with {_ending(ended)}"
    return ""


def _failing(status: ContainerStatus) -> Obstacle | None:
    """Return the problem of one container of a pod that has not ended."""
    waiting, terminated = status.state.waiting, status.state.terminated
    if waiting is not None and waiting.reason not in NORMAL_WAITS:
        last = status.last_state.terminated
        details = [] if waiting.reason == _BACK_OFF and last else [_short(waiting.message)]
        if last is not None:
            details.append(f"ended last with {_ending(last)}")
        if status.restart_count:
            details.append(f"{status.restart_count} restart{'s' * (status.restart_count > 1)}")
        known = ", ".join(filter(None, details))
        return Obstacle(
            _CONTAINER, _token(waiting.reason), f"container {status.name}: {known}".removesuffix(": ")
        )
    if terminated is not None and terminated.exit_code != 0:
        code = _token(terminated.reason) or "Error"
        return Obstacle(_CONTAINER, code, f"container {status.name} ended with {_ending(terminated)}")
    return None


def without_gpu(pod: Pod) -> Obstacle | None:
    """Return the obstacle of a pod with a GPU fraction that muster bound without a GPU; None for any other pod.

    A container without an id is simulated, and needs no GPU.
    """
    annotations = pod.metadata.annotations
    if (
        pod.status.phase != "Running"
        or annotations.keys().isdisjoint((GPU_FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION))
        or annotations.get(ADMITTED_ANNOTATION) != pod.metadata.uid
        or annotations.get(GPU_UUIDS_ANNOTATION)
        or pod.spec.resource_claims
        or pod.status.extended_resource_claim_status
        or not any(status.container_id for status in pod.status.container_statuses)
    ):
        return None
    node = pod.spec.node_name
    message = f"it runs without the GPU of its fraction, because node {node} has no agent ('muster agent')"
    return Obstacle(_GPU, GPU_NOT_RESERVED, message)


def _ending(state: ContainerStateTerminated) -> str:
    """Return how a container ended: its exit code, its reason if that is not obvious from the code, and its termination
    message.
    """
    reason = f" ({state.reason})" if state.reason not in ("", "Error", "Completed") else ""
    message = f": {_short(state.message)}" if state.message.strip() else ""
    return f"exit code {state.exit_code}{reason}{message}"


def _node_obstacle(pod: Pod, around: Surroundings) -> Obstacle | None:
    stuck = has_condition(pod.status.conditions, STUCK_CONDITION)
    if stuck is not None:
        return Obstacle(_NODE, _token(stuck.reason), stuck.message)
    name = pod.spec.node_name
    if name not in around.nodes:
        return None
    node = around.nodes[name]
    if node is None:
        return Obstacle(_NODE, NODE_DELETED, f"the cluster has no node {name} any more")
    problem = _unhealthy(node)
    return Obstacle(_NODE, NODE_NOT_READY, f"node {name}: {problem}") if problem else None


def _unhealthy(node: Node) -> str:
    from orchestrator.observe.health import node_health  # noqa: PLC0415 -- brings the planner, too slow for a list

    try:
        return node_health(node).unhealthy
    except ValueError as error:
        return f"it cannot be read: {error}"


def _slow_start(pod: Pod, statuses: Sequence[ContainerStatus], around: Surroundings) -> Obstacle | None:
    """Return why no container of the pod has started yet, from its PVCs and warnings.

    None if a container has started, or PVCs and warnings give no reason.
    """
    if pod.status.phase == "Running" or any(
        status.state.running or status.state.terminated for status in statuses
    ):
        return None
    for name in claim_names(pod):
        claim = around.claims.get(name)
        if claim is not None and claim.status.phase in ("Pending", "Lost"):
            storage_class = claim.spec.storage_class_name
            of_class = f" of StorageClass {storage_class}" if storage_class else " without a StorageClass"
            words = f"PersistentVolumeClaim {name}{of_class} is {claim.status.phase}"
            return Obstacle(_START, VOLUME_UNBOUND, "; ".join([words, *_warning(claim.metadata.uid, around)]))
    event = next(
        (event for event in reversed(around.events) if event.involved_object.uid == pod.metadata.uid), None
    )
    if event is None or event.type != "Warning":
        return None
    return Obstacle(_START, _token(event.reason), _short(event.message))


def _warning(uid: str, around: Surroundings) -> Iterator[str]:
    """Yield the newest warning about an object, if there is one."""
    for event in reversed(around.events):
        if event.involved_object.uid == uid and event.type == "Warning":
            yield f"{event.reason}: {_short(event.message)}"
            return


def claim_names(pod: Pod) -> list[str]:
    """Return the names of the PersistentVolumeClaims of the pod's volumes, including those of ephemeral volumes."""
    return [
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim
        else f"{pod.metadata.name}-{volume.name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim or volume.ephemeral
    ]


def has_not_started(pod: Pod) -> bool:
    """Return whether the pod has a node, is Pending, and has no obstacle in its own status.

    Then its PVCs and warnings can give the reason.
    """
    return bool(pod.spec.node_name) and pod.status.phase == "Pending" and obstacle(pod) is None


def _not_ended(pods: Sequence[Pod], around: Surroundings) -> str:
    """Return the number of terminating pods, their nodes, and the problem of one of these nodes."""
    nodes = _nodes([pod for pod in pods if pod.spec.node_name])
    count, have = ("1 pod", "has") if len(pods) == 1 else (f"{len(pods)} pods", "have")
    words = f"{count}{f' on {nodes}' if nodes else ''} {have} not ended yet"
    bad = next(filter(None, (_node_obstacle(pod, around) for pod in pods)), None)
    return f"{words}; {bad.message}" if bad else words


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def _short(message: str) -> str:
    """Return the message in one line of bounded length."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def _token(reason: str) -> str:
    return "".join(reason.split())
