"""What is free on each node, device by device; exact, and without the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI
from tests.world.facts import device_count, part_milli

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.planner.model import Node, Pod, Request


class NodeCapacity:
    """One node: what each of its GPUs has free in `gpu_milli` (0 for those that nobody may use), and the rest of it.

    Of GPUs that were lost without saying which, as many idle ones are nobody's.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.free_milli = [DEVICE_MILLI] * node.gpu_count
        self.cpu_milli = node.cpu_milli - node.foreign.cpu_milli
        self.memory_bytes = node.memory_bytes - node.foreign.memory_bytes
        self.pod_slots = node.pod_slots - node.foreign_pods
        self.scalars = dict(node.scalars)
        for name, amount in node.foreign.scalars:
            self.scalars[name] = self.scalars.get(name, 0) - amount
        healthy = [device for device in range(node.gpu_count) if device not in node.unhealthy_gpus]
        blocked = set(range(node.gpu_count)) - set(healthy)
        foreign = healthy[max(0, len(healthy) - node.foreign.gpu_count) :]
        for device in blocked.union(foreign):
            self.free_milli[device] = 0
        self.blocked = blocked

    def take(self, request: Request, devices: Iterable[int], sign: int = 1) -> None:
        """Count a pod's use; amounts below zero say that too much was given."""
        part = part_milli(self.node, request)
        for device in devices:
            if device < len(self.free_milli) and device not in self.blocked:
                self.free_milli[device] -= sign * part
        self.cpu_milli -= sign * request.cpu_milli
        self.memory_bytes -= sign * request.memory_bytes
        self.pod_slots -= sign
        for name, amount in request.scalars:
            self.scalars[name] = self.scalars.get(name, 0) - sign * amount

    @property
    def uses_lost(self) -> bool:
        """Whether more GPUs are used than those that the node has lost leave."""
        return self.used + self.node.lost_gpus > self.node.gpu_count

    @property
    def used(self) -> int:
        """How many GPUs somebody has, or must not be used."""
        return sum(free < DEVICE_MILLI for free in self.free_milli)

    def faults(self) -> list[str]:
        """What was given beyond what is there."""
        name = self.node.name
        lines = [
            f"GPU {device} of {name} is given {-free} thousandths too much"
            for device, free in enumerate(self.free_milli)
            if free < 0
        ]
        for what, amount in (
            ("thousandths of a CPU", self.cpu_milli),
            ("bytes of memory", self.memory_bytes),
            ("pod slots", self.pod_slots),
            *self.scalars.items(),
        ):
            if amount < 0:
                lines.append(f"{name} gives {-amount} {what} too much")
        return lines


class ClusterCapacity:
    """All nodes by name."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.by_name = {node.name: NodeCapacity(node) for node in nodes}

    def take(self, node: str | None, request: Request, devices: Iterable[int], sign: int = 1) -> None:
        """Count a pod's use; a node that is not there is left alone."""
        capacity = self.by_name.get(node or "")
        if capacity is not None:
            capacity.take(request, devices, sign)

    def take_pod(self, pod: Pod, sign: int = 1) -> None:
        self.take(pod.node, pod.request, pod.devices, sign)

    def faults(self, names: Iterable[str]) -> list[str]:
        """What was given beyond what is there, on these nodes."""
        return [
            line
            for name in sorted(set(names))
            if name in self.by_name
            for line in self.by_name[name].faults()
        ]


def devices_fault(node: Node, request: Request, devices: tuple[int, ...]) -> str | None:
    """Why these are not the devices that the request asks for, or None."""
    if len(devices) != device_count(request):
        return f"{len(devices)} devices for a pod that asks for {device_count(request)}"
    if len(set(devices)) != len(devices):
        return "the same device twice"
    bad = [device for device in devices if device >= node.gpu_count or device in node.unhealthy_gpus]
    return f"devices {bad} of {node.name} must not be used" if bad else None
