"""The free capacity of each node, device by device, computed exactly and without the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI
from tests.world.facts import device_count, part_milli

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.planner.model import Node, Pod, Request


class NodeCapacity:
    """The free capacity of one node: `gpu_milli` of each GPU (0 for unusable ones), CPU, memory, pod slots and scalars.

    The GPUs of other schedulers are taken to be the last healthy ones. A node can lose GPUs without naming them
    (`uses_lost`).
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
        """Subtract the use of a pod; with `sign` -1, add it again. A negative amount means that pods got more than
        there is.
        """
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
        """Whether more GPUs are used than the node has without its lost ones."""
        return self.used + self.node.lost_gpus > self.node.gpu_count

    @property
    def used(self) -> int:
        """The number of GPUs that are used or unusable."""
        return sum(free < DEVICE_MILLI for free in self.free_milli)

    def faults(self) -> list[str]:
        """Return a line for each resource of which pods got more than the node has."""
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
    """The capacity of all nodes, by name."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.by_name = {node.name: NodeCapacity(node) for node in nodes}

    def take(self, node: str | None, request: Request, devices: Iterable[int], sign: int = 1) -> None:
        """Subtract the use of a pod from its node. An unknown node is ignored."""
        capacity = self.by_name.get(node or "")
        if capacity is not None:
            capacity.take(request, devices, sign)

    def take_pod(self, pod: Pod, sign: int = 1) -> None:
        self.take(pod.node, pod.request, pod.devices, sign)

    def faults(self, names: Iterable[str]) -> list[str]:
        """Return the faults of these nodes."""
        return [
            line
            for name in sorted(set(names))
            if name in self.by_name
            for line in self.by_name[name].faults()
        ]


def devices_fault(node: Node, request: Request, devices: tuple[int, ...]) -> str | None:
    """Return why these devices do not match the request; None if they match."""
    if len(devices) != device_count(request):
        return f"{len(devices)} devices for a pod that asks for {device_count(request)}"
    if len(set(devices)) != len(devices):
        return "the same device twice"
    bad = [device for device in devices if device >= node.gpu_count or device in node.unhealthy_gpus]
    return f"devices {bad} of {node.name} must not be used" if bad else None
