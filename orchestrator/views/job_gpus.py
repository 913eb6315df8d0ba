"""What jobs hold and ask for in thousandths of GPUs, memory of GPUs included, where their nodes are known."""

from collections.abc import Iterable

from orchestrator.cluster.quantity import memory_mib
from orchestrator.planner.accounting.gpu_memory import GpuSizes
from orchestrator.planner.model import Request
from orchestrator.views.jobs import WorkloadView
from orchestrator.views.nodes import NodeView


class GpusOfJobs:
    """Counts by these nodes. Of jobs on others, or where there are none, memory of GPUs counts as nothing."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        known = list(nodes)
        self._placed_milli = {pod.uid: pod.gpu_milli for node in known for pod in node.pods}
        self._has_nodes = bool(known)
        self._sizes = GpuSizes({node.name: node.gpu_memory_bytes >> 20 for node in known})

    def held_milli(self, view: WorkloadView) -> int:
        """What its pods that have a node hold there."""
        return view.held_by_nodes_milli(self._placed_milli)

    def requested_milli(self, view: WorkloadView) -> int:
        """What its pods ask for together, memory of GPUs as quotas count it."""
        if not view.gpu_memory or not self._has_nodes:
            return view.gpu_milli
        try:
            mib = memory_mib(view.gpu_memory)
        except ValueError:
            return view.gpu_milli
        return self._sizes.counted_milli(Request(gpu_memory_mib=mib, shared_devices=view.gpu_count))
