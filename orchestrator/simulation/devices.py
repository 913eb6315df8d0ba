"""Chooses GPU indices for pods whose devices a snapshot file does not name."""

from collections.abc import Iterable

from orchestrator.planner.model import DEVICE_MILLI, Node, Request


class Devices:
    """The used amount of each GPU in `gpu_milli`. Pods of other schedulers use the last GPUs of a node."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._used = {node.name: [0] * node.gpu_count for node in self.nodes.values()}
        for node in self.nodes.values():
            for device in range(max(0, node.gpu_count - node.foreign.gpu_count), node.gpu_count):
                self._used[node.name][device] = DEVICE_MILLI

    def occupy(self, node: str, device: int, request: Request) -> None:
        """Add a pod's amount to the used amount of the device; does nothing for an unknown node or device."""
        used = self._used.get(node, [])
        if device < len(used):
            used[device] += request.portion_milli(self.nodes[node].gpu_memory_mib)

    def choose(self, node: str, request: Request) -> tuple[int, ...] | None:
        """Occupy and return the first idle devices; for a fraction, the fullest devices with enough left. None: too
        few devices fit.
        """
        used = self._used[node]
        if request.is_shared:
            max_used_milli = DEVICE_MILLI - request.portion_milli(self.nodes[node].gpu_memory_mib)
            device_count = request.shared_devices
            fits = sorted((-held, device) for device, held in enumerate(used) if held <= max_used_milli)
            chosen = [device for _, device in fits][:device_count]
        else:
            device_count = request.gpu_count
            chosen = [device for device, held in enumerate(used) if not held][:device_count]
        if len(chosen) < device_count:
            return None
        for device in chosen:
            self.occupy(node, device, request)
        return tuple(sorted(chosen))
