"""The limit of device memory in containers with a part of a GPU: what their pods mount, and what the operator writes.

The file of limits in a container is the pod's annotation `muster.dev/gpu-memory-limits`, which kubelet writes when the
pod starts. What each line means, and who reads it, is in docs/explanation/fractions.md. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import memory_bytes
from orchestrator.planner.model import DEVICE_MILLI, Request
from orchestrator.submit.submission import Submission

ANY_DEVICE: Final = "*"
"""Stands for every device that has no line of its own."""

_LIBRARY: Final = "gpu-memory-library"
_LIMITS: Final = "gpu-memory-limits"
_COUNT: Final = "gpu-memory-count"
_PRELOAD: Final = "ld.so.preload"
_FIELD: Final = f"metadata.annotations['{names.GPU_MEMORY_LIMITS_ANNOTATION}']"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of a node, as far as somebody knows: "" and 0 where nobody does."""

    uuid: str = ""
    memory_bytes: int = 0


def volumes_and_mounts(submission: Submission) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what a pod with a part of a GPU mounts so that it has no more; nothing for any other."""
    if not (submission.is_fraction or submission.gpu_memory_bytes):
        return [], []
    volumes: list[dict[str, Any]] = [
        # no DirectoryOrCreate: where the library is missing the pod waits, and does not run without a limit
        {"name": _LIBRARY, "hostPath": {"path": names.GPU_MEMORY_DIRECTORY, "type": "Directory"}},
        {
            "name": _LIMITS,
            "downwardAPI": {"items": [{"path": "limits", "fieldRef": {"fieldPath": _FIELD}}]},
        },
        {"name": _COUNT, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": _LIBRARY, "mountPath": "/usr/lib/muster", "readOnly": True},
        {"name": _LIBRARY, "mountPath": f"/etc/{_PRELOAD}", "subPath": _PRELOAD, "readOnly": True},
        {"name": _LIMITS, "mountPath": "/etc/muster/gpu-memory", "readOnly": True},
        {"name": _COUNT, "mountPath": "/run/muster/gpu-memory"},
    ]
    return volumes, mounts


def is_limited(pod: Pod) -> bool:
    """Whether the pod mounts the library's directory, so that what is written on it holds."""
    return any(
        volume.host_path is not None and volume.host_path.path == names.GPU_MEMORY_DIRECTORY
        for volume in pod.spec.volumes
    )


def limits_text(pod: Pod, request: Request, devices: Iterable[Device]) -> str:
    """Return the annotation of a pod that gets this part of these devices; "" where nobody knows their memory.

    A device without a known UUID is any: a container sees those that it was given, of which it has the same part.
    """
    lines: dict[str, int] = {}
    for device in devices:
        limit_bytes = _part_bytes(pod, request, device.memory_bytes)
        if not limit_bytes:
            return ""
        key = device.uuid or ANY_DEVICE
        lines[key] = min(limit_bytes, lines.get(key, limit_bytes))
    return "".join(f"{key} {limit_bytes}\n" for key, limit_bytes in lines.items())


def limits_of(pod: Pod) -> Mapping[str, int]:
    """Return by UUID, or `*`, the bytes that are written on a pod; nothing of what muster never writes."""
    limits: dict[str, int] = {}
    for line in pod.metadata.annotations.get(names.GPU_MEMORY_LIMITS_ANNOTATION, "").splitlines():
        uuid, _, text = line.partition(" ")
        limit_bytes = whole_number(text)
        if limit_bytes is None:
            return {}
        limits[uuid] = limit_bytes
    return limits


def _part_bytes(pod: Pod, request: Request, device_bytes: int) -> int:
    """What the pod asks for of a device of that size, rounded down; never more than there is. 0: not known."""
    if request.gpu_portion_milli:
        return device_bytes * request.gpu_portion_milli // DEVICE_MILLI
    requested_bytes = memory_bytes(pod.metadata.annotations[names.GPU_MEMORY_ANNOTATION])
    return min(requested_bytes, device_bytes) if device_bytes else requested_bytes
