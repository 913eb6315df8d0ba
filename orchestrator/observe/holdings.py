"""Derives the GPUs of bound pods on one node if muster's annotations do not name them. Pure.

    muster bound it              its annotation names its GPUs
    another scheduler bound it   its annotation is not reliable; the number of requested GPUs counts

A pod counts with at most the GPUs of its node, because the kubelet cannot give it more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.planner.model import DEVICE_MILLI, Request

NO_GPUS: Final[tuple[int, ...]] = ()


@dataclass(frozen=True, slots=True)
class GpuNode:
    """The GPUs of a node: their number, the unhealthy indices, and the number of lost GPUs."""

    count: int
    unhealthy: tuple[int, ...] = ()
    lost: int = 0
    memory_mib: int = 0


class NodeDevices:
    """The used thousandths of each GPU of a node, while the devices of its pods are derived."""

    def __init__(self, node: GpuNode) -> None:
        self._node = node
        self._held_milli = [0] * node.count
        self._usable = frozenset(range(node.count)).difference(node.unhealthy)

    def occupy(self, request: Request, devices: Sequence[int]) -> None:
        """Add the devices of a pod. Devices that the node does not have are ignored."""
        share_milli = self._share_milli(request)
        for device in devices:
            if device < self._node.count:
                self._held_milli[device] += share_milli

    def fits(self, request: Request, devices: Sequence[int]) -> bool:
        """Return whether the pod could hold these devices in addition to the added pods."""
        share_milli = self._share_milli(request)
        return len(devices) == _count(request) and all(
            device in self._usable and self._held_milli[device] + share_milli <= DEVICE_MILLI
            for device in devices
        )

    def choose(self, request: Request) -> tuple[int, ...]:
        """Return devices for the pod's request, possibly fewer than requested.

        Fractions are placed on shared devices if possible. Idle devices with the highest index come first: muster
        itself uses these last.
        """
        count = _count(request)
        idle = [device for device in sorted(self._usable, reverse=True) if not self._held_milli[device]]
        idle = idle[: max(0, len(idle) - self._node.lost)]
        if not request.is_shared:
            return tuple(sorted(idle[:count]))
        max_held_milli = DEVICE_MILLI - self._share_milli(request)
        shared = [
            device
            for device in sorted(self._usable, key=lambda device: (-self._held_milli[device], -device))
            if 0 < self._held_milli[device] <= max_held_milli
        ]
        return tuple(sorted([*shared, *idle][:count]))

    def _share_milli(self, request: Request) -> int:
        return request.portion_milli(self._node.memory_mib) if request.is_shared else DEVICE_MILLI


def held_request(request: Request, devices: Sequence[int]) -> Request:
    """Return the request with the GPUs of a pod reduced to the number of these devices."""
    if not request.is_shared:
        return Request(len(devices), 0, request.cpu_milli, request.memory_bytes, scalars=request.scalars)
    if not devices:
        return Request(
            cpu_milli=request.cpu_milli, memory_bytes=request.memory_bytes, scalars=request.scalars
        )
    return Request(
        gpu_portion_milli=request.gpu_portion_milli,
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        gpu_memory_mib=request.gpu_memory_mib,
        shared_devices=len(devices),
        scalars=request.scalars,
    )


def _count(request: Request) -> int:
    return request.shared_devices if request.is_shared else request.gpu_count
