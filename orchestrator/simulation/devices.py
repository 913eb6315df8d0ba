"""Chooses GPUs for pods of which a file says only the node."""

from collections.abc import Iterable

from orchestrator.planner.model import DEVICE_MILLI, Node, Request


class Devices:
    """What is used of each GPU of each node, in `gpu_milli`. GPUs of other schedulers' pods count from the top."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: [0] * node.gpu_count for node in nodes}
        for node in nodes:
            for device in range(max(0, node.gpu_count - node.foreign.gpu_count), node.gpu_count):
                self.nodes[node.name][device] = DEVICE_MILLI

    def occupy(self, node: str, device: int, request: Request) -> None:
        """Count a pod's part of a device; a node or device that is not there is left alone."""
        used = self.nodes.get(node, [])
        if device < len(used):
            used[device] += request.gpu_portion_milli or DEVICE_MILLI

    def choose(self, node: str, request: Request) -> tuple[int, ...] | None:
        """Take the first idle devices, or the fullest that still has room for a part of one. None: there are none."""
        used = self.nodes[node]
        if request.gpu_portion_milli:
            fits = [d for d, held in enumerate(used) if held + request.gpu_portion_milli <= DEVICE_MILLI]
            chosen = sorted(fits, key=lambda d: (-used[d], d))[:1]
            wanted = 1
        else:
            chosen = [d for d, held in enumerate(used) if not held][: request.gpu_count]
            wanted = request.gpu_count
        if len(chosen) < wanted:
            return None
        for device in chosen:
            self.occupy(node, device, request)
        return tuple(sorted(chosen))
