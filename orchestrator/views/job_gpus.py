"""The allocation and requests of jobs in thousandths of GPUs, memory of GPUs included, if their nodes are known."""

from collections.abc import Iterable, Iterator

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import memory_mib
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.model import Request
from orchestrator.views.jobs import WorkloadView
from orchestrator.views.nodes import NodeView


class GpusOfJobs:
    """The amounts of GPUs of jobs, computed with these nodes.

    On other nodes, or without nodes, requested GPU memory counts as zero.
    """

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        known = list(nodes)
        self._placed_milli = {pod.uid: pod.gpu_milli for node in known for pod in node.pods}
        self._has_nodes = bool(known)
        self._sizes = GpuSizes({node.name: node.gpu_memory_bytes >> 20 for node in known})

    def held_milli(self, view: WorkloadView) -> int:
        """Return the GPUs of the workload's pods that have a node."""
        return view.held_by_nodes_milli(self._placed_milli)

    def held_of_pods_milli(self, view: WorkloadView) -> Iterator[tuple[Pod, int]]:
        """Yield the workload's pods that have a node, each with its GPUs."""
        return view.held_of_pods_milli(self._placed_milli)

    def requested_milli(self, view: WorkloadView) -> int:
        """Return the sum of the requests of the workload's pods. GPU memory counts as in quotas."""
        if not view.gpu_memory or not self._has_nodes:
            return view.gpu_milli
        try:
            mib = memory_mib(view.gpu_memory)
        except ValueError:
            return view.gpu_milli
        return self._sizes.counted_milli(Request(gpu_memory_mib=mib, shared_devices=view.gpu_count))
