"""The single GPUs in `top`, `get` and `list`: the reports of agents, joined with pods. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.cluster.gpu_nodes import GpuNode, GpuState, GpuUser
from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.names import ADMITTED_ANNOTATION, GPU_DEVICES_ANNOTATION, GPU_UUIDS_ANNOTATION

STALE_SECONDS: Final = 660
"""An agent writes at least every 5 minutes. After two missing writes, its figures are not current."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU as people see it; unmeasured and old figures are None.

    `failure` is the reason why the GPU must not be used, "" if it may be used. `holders` are the pods that have it, as
    `namespace/name`. `idle_seconds` is the time for which its utilization has been 0 although it has holders.

    `users` are the containers whose processes have memory of it. `observed_us` is the time of the agent's report, 0 if
    the report is old.
    """

    node: str
    index: int
    uuid: str
    model: str
    memory_bytes: int
    failure: str
    holders: tuple[str, ...] = ()
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    idle_seconds: int | None = None
    users: tuple[GpuUser, ...] = ()
    bus_id: str = ""
    observed_us: int = 0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The GPUs of a job together: the mean of their use, the memory, and the longest idle time."""

    utilization_percent: int | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    idle_seconds: int | None = None


def gpu_views(node: GpuNode, now_us: int) -> tuple[GpuView, ...]:
    """Return the GPUs of one node, in the order of their indices."""
    observed_us = time_us(node.spec.observed_at)
    if now_us - observed_us >= STALE_SECONDS * 1_000_000 or node.spec.problem:
        observed_us = 0
    states = sorted(node.spec.gpus, key=lambda state: state.index)
    return tuple(_view(node.metadata.name, state, now_us, observed_us) for state in states)


def gpus_of_pod(pod: Pod, gpus: Mapping[str, Iterable[GpuView]]) -> Iterator[GpuView]:
    """Yield the GPUs of a pod.

    A GPU belongs to the pod if the kubelet gave it to the pod or to the reservation of its fraction. It also belongs to
    the pod if a process of the pod uses it. `gpus` maps each node name to its GPUs.
    """
    if not pod.spec.node_name or pod.status.phase in _ENDED:
        return
    name, uid = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.uid
    held = set(filter(None, pod.metadata.annotations.get(GPU_UUIDS_ANNOTATION, "").split(",")))
    for gpu in gpus.get(pod.spec.node_name, ()):
        if gpu.uuid in held or name in gpu.holders or any(user.pod_uid == uid for user in gpu.users):
            yield gpu


def gpus_of_job(pods: Iterable[Pod], gpus: Mapping[str, Iterable[GpuView]]) -> list[GpuView]:
    """Return the GPUs of all pods of a job. A GPU that several pods share is listed once."""
    return list(dict.fromkeys(gpu for pod in pods for gpu in gpus_of_pod(pod, gpus)))


def bound_devices(pods: Iterable[Pod]) -> Iterator[tuple[str, int]]:
    """Yield the node and index of each GPU in the annotations of the operator, for clusters without an agent."""
    for pod in pods:
        metadata = pod.metadata
        is_bound = pod.spec.node_name and metadata.annotations.get(ADMITTED_ANNOTATION) == metadata.uid
        if is_bound and pod.status.phase not in _ENDED:
            for part in metadata.annotations.get(GPU_DEVICES_ANNOTATION, "").split(","):
                if (index := whole_number(part)) is not None:
                    yield pod.spec.node_name, index


def use_of(gpus: Iterable[GpuView], pods: Iterable[Pod] | None = None) -> GpuUse:
    """Return the sums and the mean of the GPUs' figures. With `pods`, the used memory is only that of these pods.

    If the driver names no process of a pod on a GPU with one holder, all used memory of the GPU counts for that holder.
    """
    distinct = list(gpus)
    known = [gpu.utilization_percent for gpu in distinct if gpu.utilization_percent is not None]
    uids = None if pods is None else frozenset(pod.metadata.uid for pod in pods)
    used = [bytes_ for gpu in distinct if (bytes_ := _used_bytes(gpu, uids)) is not None]
    idle = [gpu.idle_seconds for gpu in distinct if gpu.idle_seconds is not None]
    return GpuUse(
        utilization_percent=-(-sum(known) // len(known)) if known else None,
        memory_bytes=sum(gpu.memory_bytes for gpu in distinct) if distinct else None,
        memory_used_bytes=sum(used) if used else None,
        idle_seconds=max(idle, default=None),
    )


def record(gpu: GpuView) -> dict[str, Any]:
    """Return the GPU for `-o json` and `-o yaml`; unmeasured figures are null."""
    return {
        "node": gpu.node,
        "index": gpu.index,
        "uuid": gpu.uuid,
        "pciBusId": gpu.bus_id,
        "model": gpu.model,
        "memoryBytes": gpu.memory_bytes,
        "memoryBytesUsed": gpu.memory_used_bytes,
        "utilizationPercent": gpu.utilization_percent,
        "idleSeconds": gpu.idle_seconds,
        "failure": gpu.failure,
        "pods": list(gpu.holders),
    }


def _used_bytes(gpu: GpuView, uids: frozenset[str] | None) -> int | None:
    is_one_pods = len(gpu.holders) == 1 and not any(user.pod_uid for user in gpu.users)
    if uids is None or is_one_pods:
        return gpu.memory_used_bytes
    if gpu.memory_used_bytes is None:
        return None
    return sum(user.memory_mib * _MIB for user in gpu.users if user.pod_uid in uids)


def _view(node: str, state: GpuState, now_us: int, observed_us: int) -> GpuView:
    is_fresh = observed_us != 0
    idle_since_us = time_us(state.idle_since)
    holders = dict.fromkeys(f"{holder.namespace}/{holder.pod}" for holder in state.holders)
    return GpuView(
        node=node,
        index=state.index,
        uuid=state.uuid,
        model=state.model,
        memory_bytes=state.memory_mib * _MIB,
        failure=state.failure,
        holders=tuple(holders) if is_fresh else (),
        utilization_percent=state.utilization_percent if is_fresh else None,
        memory_used_bytes=(
            state.memory_used_mib * _MIB if is_fresh and state.memory_used_mib is not None else None
        ),
        idle_seconds=(max(0, now_us - idle_since_us) // 1_000_000 if is_fresh and idle_since_us else None),
        users=tuple(state.users) if is_fresh else (),
        bus_id=state.bus_id,
        observed_us=observed_us,
    )
