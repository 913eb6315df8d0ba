"""What requests for memory of GPUs count as, in thousandths of a GPU; other requests count as they say."""

from collections.abc import Iterable, Mapping

from orchestrator.planner.model import Node, Request


class GpuSizes:
    """The sizes of the GPUs of nodes, by the names of the nodes; 0 where a node does not say."""

    def __init__(self, memory_mib: Mapping[str, int]) -> None:
        self._memory_mib = memory_mib
        self._sizes_mib = sorted({size for size in self._memory_mib.values() if size})

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> "GpuSizes":
        """The sizes of the GPUs of these nodes."""
        return cls({node.name: node.gpu_memory_mib for node in nodes})

    def portion_milli(self, request: Request) -> int:
        """The part of the smallest GPU that has so much memory; all of it where no GPU has so much."""
        smallest = next((size for size in self._sizes_mib if size >= request.gpu_memory_mib), 0)
        return request.portion_milli(smallest)

    def counted_milli(self, request: Request) -> int:
        """What quotas and shares count, waiting or running."""
        if not request.gpu_memory_mib:
            return request.gpu_milli
        return request.shared_devices * self.portion_milli(request)

    def held_milli(self, request: Request, node: str | None) -> int:
        """What it takes of the GPUs of the node: memory of a large GPU is less of it than of a small one."""
        return gpu_milli_on(request, self._memory_mib.get(node or "", 0))


def gpu_milli_on(request: Request, device_memory_mib: int) -> int:
    """What it takes of GPUs with so much memory each; all of them where that is unknown (0)."""
    if not request.gpu_memory_mib:
        return request.gpu_milli
    return request.shared_devices * request.portion_milli(device_memory_mib)
