"""The GPU memory limit of containers with a GPU fraction: the mounts of their pods, and the operator's annotation.

The file of limits in a container is the pod's annotation `muster.dev/gpu-memory-limits`, which the kubelet writes at
the start. docs/explanation/fractions.md describes its lines. Pure.
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
"""The key of the line for every device without a line of its own."""

_LIBRARY: Final = "gpu-memory-library"
_LIMITS: Final = "gpu-memory-limits"
_COUNT: Final = "gpu-memory-count"
_PRELOAD: Final = "ld.so.preload"
_FIELD: Final = f"metadata.annotations['{names.GPU_MEMORY_LIMITS_ANNOTATION}']"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of a node; "" and 0 are unknown values."""

    uuid: str = ""
    memory_bytes: int = 0


def volumes_and_mounts(submission: Submission) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes and mounts of the library for a pod with a GPU fraction; empty lists for other pods."""
    if not (submission.is_fraction or submission.gpu_memory_bytes):
        return [], []
    volumes: list[dict[str, Any]] = [
        # not DirectoryOrCreate: without the library, the pod would run without a limit, so it must not start
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
    """Return whether the pod mounts the directory of the library, so that its limits take effect."""
    return any(
        volume.host_path is not None and volume.host_path.path == names.GPU_MEMORY_DIRECTORY
        for volume in pod.spec.volumes
    )


def limits_text(pod: Pod, request: Request, devices: Iterable[Device]) -> str:
    """Return the annotation for a pod with a fraction of `devices`; "" if the memory of a device is unknown.

    A device without a known UUID gets the line `*`: a container has the same fraction of each of its devices.
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
    """Return the limits in bytes of a pod's annotation, by UUID or `*`; empty if a line is invalid."""
    limits: dict[str, int] = {}
    for line in pod.metadata.annotations.get(names.GPU_MEMORY_LIMITS_ANNOTATION, "").splitlines():
        uuid, _, text = line.partition(" ")
        limit_bytes = whole_number(text)
        if limit_bytes is None:
            return {}
        limits[uuid] = limit_bytes
    return limits


def _part_bytes(pod: Pod, request: Request, device_bytes: int) -> int:
    """Return the bytes that the pod requests of a device, rounded down and at most `device_bytes`. 0: unknown."""
    if request.gpu_portion_milli:
        return device_bytes * request.gpu_portion_milli // DEVICE_MILLI
    requested_bytes = memory_bytes(pod.metadata.annotations[names.GPU_MEMORY_ANNOTATION])
    return min(requested_bytes, device_bytes) if device_bytes else requested_bytes
