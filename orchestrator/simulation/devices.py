"""Chooses GPUs for pods of which a file says only the node."""

from collections.abc import Iterable

from orchestrator.planner.model import DEVICE_MILLI, Node, Request


class Devices:
    """What is used of each GPU of each node, in `gpu_milli`. GPUs of other schedulers' pods count from the top."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._used = {node.name: [0] * node.gpu_count for node in self.nodes.values()}
        for node in self.nodes.values():
            for device in range(max(0, node.gpu_count - node.foreign.gpu_count), node.gpu_count):
                self._used[node.name][device] = DEVICE_MILLI

    def occupy(self, node: str, device: int, request: Request) -> None:
        """Count a pod's part of a device; a node or device that is not there is left alone."""
        used = self._used.get(node, [])
        if device < len(used):
            used[device] += request.portion_milli(self.nodes[node].gpu_memory_mib)

    def choose(self, node: str, request: Request) -> tuple[int, ...] | None:
        """Take the first idle devices, or the fullest that still have room for a part of one. None: there are none."""
        used = self._used[node]
        if request.is_shared:
            most = DEVICE_MILLI - request.portion_milli(self.nodes[node].gpu_memory_mib)
            wanted = request.shared_devices
            fits = sorted((-held, device) for device, held in enumerate(used) if held <= most)
            chosen = [device for _, device in fits][:wanted]
        else:
            wanted = request.gpu_count
            chosen = [device for device, held in enumerate(used) if not held][:wanted]
        if len(chosen) < wanted:
            return None
        for device in chosen:
            self.occupy(node, device, request)
        return tuple(sorted(chosen))
