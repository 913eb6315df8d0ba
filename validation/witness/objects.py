"""Turns objects of the API server into the judge's events: plain JSON in, events out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final

from validation.judge.events import ENDED, Eviction, GpuSeen, GpusSeen, NodeSeen, PodSeen
from validation.witness import names
from validation.witness.causes import cause_of

MAX_GPUS: Final = 1_000_000
"""Maximum value of the annotation of a GPU fraction; a larger value is invalid."""

Json = Mapping[str, Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_STATUS: Final = (
    "phase",
    "reason",
    "message",
    "conditions",
    "nominatedNodeName",
    "nodeInfo",
    "allocatable",
    "initContainerStatuses",
    "containerStatuses",
)
"""The fields that are read of the status of pods and nodes."""


def pod_seen(pod: Json, *, change: str, project: str, t_ms: int) -> PodSeen:
    """Return the present state of the pod as an event."""
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    preemptible = annotations.get(names.PREEMPTIBLE_ANNOTATION)
    return PodSeen(
        t_ms=t_ms,
        change=change,
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        project=project,
        workload=labels.get(names.WORKLOAD_LABEL) or _controller(metadata) or metadata["name"],
        pod=metadata["name"],
        phase=status.get("phase") or "Pending",
        node=spec.get("nodeName") or "",
        devices=_devices(annotations.get(names.GPU_DEVICES_ANNOTATION, "")),
        gpu_milli=_gpu_milli(spec, annotations),
        preemptible=labels.get(names.TYPE_LABEL) != names.INTERACTIVE
        if preemptible is None
        else preemptible == "true",
        priority=spec.get("priority") or 0,
        submitted_us=_time_us(
            annotations.get(names.SUBMITTED_AT_ANNOTATION) or metadata.get("creationTimestamp", "")
        ),
        min_member=_positive(annotations.get(names.MIN_MEMBER_ANNOTATION, "1")),
        terminating=metadata.get("deletionTimestamp") is not None,
        eviction=_eviction(status, annotations),
        cause=cause_of(pod),
        nominated_node=status.get("nominatedNodeName") or "",
    )


def outsider_gpus(pod: Json, *, change: str) -> tuple[str, int] | None:
    """Return the node and the GPUs that a pod without a project holds; None if it holds none.

    The result is None for a reservation by which the operator shares a GPU.
    """
    metadata, node = pod["metadata"], pod["spec"].get("nodeName") or ""
    is_ours = metadata["namespace"] == names.SYSTEM_NAMESPACE and names.RESERVATION_LABEL in (
        metadata.get("labels") or {}
    )
    milli = _gpu_milli(pod["spec"], metadata.get("annotations") or {})
    ended = change == "deleted" or pod.get("status", {}).get("phase") in ENDED
    return None if is_ours or ended or not node or not milli else (node, milli)


def node_seen(node: Json, *, change: str, t_ms: int, published: int = 0) -> NodeSeen:
    """Return the present state of the node as an event.

    `published` is the number of GPUs that DRA drivers publish for the node. If a device plugin announces GPUs too, they
    are the same GPUs, so the larger number counts. A deleted node has 0 GPUs.
    """
    status = node.get("status", {})
    plugged = int((status.get("allocatable") or {}).get(names.GPU_RESOURCE, 0))
    gpus = 0 if change == "deleted" else max(plugged, published)
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
    node_type = (node["metadata"].get("labels") or {}).get(names.NODE_TYPE_LABEL, "")
    return NodeSeen(
        t_ms=t_ms,
        node=node["metadata"]["name"],
        gpus=gpus,
        ready=ready,
        node_type=node_type,
        cordoned=bool(node.get("spec", {}).get("unschedulable")),
        uid=node["metadata"].get("uid") or "",
        system_uuid=(status.get("nodeInfo") or {}).get("systemUUID") or "",
    )


def published_gpus(slices: Iterable[Json]) -> dict[str, int]:
    """Return the number of GPUs that NVIDIA's DRA driver publishes on each node: whole GPUs in the newest generation of
    each pool, without a taint.
    """
    pools: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for entry in slices:
        spec = entry["spec"]
        if spec.get("driver") == names.GPU_DRIVER and spec.get("nodeName"):
            pool = spec["pool"]
            pools[spec["nodeName"], pool["name"]][pool["generation"]] += sum(
                map(_is_gpu, spec.get("devices") or ())
            )
    counts: dict[str, int] = defaultdict(int)
    for (node, _), generations in pools.items():
        counts[node] += generations[max(generations)]
    return dict(counts)


def container_ids(pod: Json) -> tuple[str, ...]:
    """Return the container runtime's ids of the pod's started containers."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    written = (status.get("containerID") or "" for status in statuses)
    return tuple(text.rpartition("/")[2] for text in written if text)


def gpus_seen(
    gpu_node: Json, *, change: str, t_ms: int, pods_by_container: Mapping[str, str] = _NOTHING
) -> GpusSeen:
    """Return the GPUs of the node with the pods that have them allocated and the pods whose processes use them.

    The source is the object that the node's agent wrote.

    If a process on a GPU has only a container's id, `pods_by_container` gives the uid of its pod.
    """
    spec = {} if change == "deleted" else gpu_node.get("spec", {})
    return GpusSeen(
        t_ms=t_ms,
        node=gpu_node["metadata"]["name"],
        observed_at=spec.get("observedAt") or "",
        gpus=tuple(
            GpuSeen(
                index=gpu["index"],
                holders=tuple(
                    dict.fromkeys(f"{one['namespace']}/{one['pod']}" for one in gpu.get("holders") or ())
                ),
                users=tuple(
                    dict.fromkeys(
                        one.get("podUid") or pods_by_container.get(one.get("containerId", ""), "")
                        for one in gpu.get("users") or ()
                    )
                ),
                uuid=gpu.get("uuid") or "",
            )
            for gpu in spec.get("gpus") or ()
        ),
    )


def slim(entry: Json) -> dict[str, Any]:
    """Return the object with only the fields that events need: a cluster has many objects, and they are large."""
    metadata = {name: value for name, value in entry["metadata"].items() if name != "managedFields"}
    metadata["managedFields"] = [{"time": server_time(entry)}]
    spec = dict(entry.get("spec") or {})
    if "containers" in spec:
        containers = [
            {name: container.get(name) for name in ("name", "resources")} for container in spec["containers"]
        ]
        spec = {"nodeName": spec.get("nodeName"), "priority": spec.get("priority"), "containers": containers}
    status = entry.get("status") or {}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {name: status[name] for name in _STATUS if name in status},
    }


def server_time(entry: Json) -> str:
    """Return the API server's time of the last write to the object, to the second; RFC 3339."""
    metadata = entry["metadata"]
    times = [manager.get("time") or "" for manager in metadata.get("managedFields") or ()]
    return max([*times, metadata.get("deletionTimestamp") or "", metadata.get("creationTimestamp") or ""])


def _is_gpu(device: Json) -> bool:
    """Return whether the device is a whole GPU that new ResourceClaims may use. In v1beta1 its attributes are below
    `basic`.
    """
    device = device.get("basic") or device
    taints = device.get("taints") or ()
    kind = (device.get("attributes") or {}).get("type") or {}
    return kind.get("string") == "gpu" and all(taint["effect"] == "None" for taint in taints)


def _controller(metadata: Json) -> str:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["name"])
    return ""


def _eviction(status: Json, annotations: Json) -> Eviction | None:
    """If the pod's conditions say that the API server evicted it, return the eviction with muster's message."""
    targeted = any(
        condition["type"] == "DisruptionTarget"
        and condition["status"] == "True"
        and condition.get("reason") == names.EVICTION_REASON
        for condition in status.get("conditions") or ()
    )
    because = annotations.get(names.EVICTION_REASON_ANNOTATION)
    return Eviction(names.EVICTION_REASON, because) if targeted and because is not None else None


def _gpu_milli(spec: Json, annotations: Json) -> int:
    fraction = annotations.get(names.GPU_FRACTION_ANNOTATION)
    if fraction is not None:
        try:
            part = Decimal(fraction)
        except InvalidOperation:
            return 0
        return int(part * 1000) if part.is_finite() and 0 <= part <= MAX_GPUS else 0
    limits = (
        (container.get("resources") or {}).get("limits") or {} for container in spec.get("containers", ())
    )
    return sum(int(limit.get(names.GPU_RESOURCE, 0)) for limit in limits) * 1000


def _devices(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip().isdecimal())


def _positive(text: str) -> int:
    return max(1, int(text)) if text.isdecimal() else 1


def _time_us(text: str) -> int:
    """Return microseconds since the epoch. Return 0 if the text is not a time with a zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return (moment - _EPOCH) // timedelta(microseconds=1) if moment.tzinfo else 0
