"""What is written on a pod with a part of a GPU in the request that binds it: how much memory it may have of which GPU.

What the GPUs of a node really have is told, in this order, by the slices in which a driver publishes them, by the
GpuNode that the node's agent writes, and by the label of NVIDIA's feature discovery, which names no GPU.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.control.carry_out.volume_claims import ClaimNotReady
from orchestrator.names import GPU_MEMORY_LABEL, GPU_MEMORY_LIMITS_ANNOTATION
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.observe.request import gpu_request
from orchestrator.planner.model import Binding
from orchestrator.submit.memory_limits import Device, is_limited, limits_text

NOT_LIMITED: Final = "GpuMemoryNotLimited"
"""The reason of the Event on a pod whose containers have no limit."""
_NO_LIBRARY: Final = (
    "it has a GPU fraction and does not mount the library that limits its memory. "
    "The operator only watches its memory"
)
_MIB: Final = 1 << 20


class MemoryUnknown(ClaimNotReady):
    """Nobody says how much memory the GPUs of the node have: containers with a part of one could allocate nothing."""


class MemoryLimits:
    """Knows the GPUs of nodes by `gpu_node`, the `published` ones and the `labels` of a node, all by its name.

    `warn` is told of pods that run without a limit.
    """

    def __init__(
        self,
        *,
        gpu_node: Callable[[str], GpuNode | None],
        published: Callable[[], Mapping[str, PublishedGpus]],
        labels: Callable[[str], Mapping[str, str]],
        warn: Callable[[Pod, str, str], None],
    ) -> None:
        self._gpu_node = gpu_node
        self._published = published
        self._labels = labels
        self._warn = warn

    def annotations(self, pod: Pod, binding: Binding) -> dict[str, str]:
        """Return what is written on the pod when it is bound so; nothing on one without a part of a GPU.

        Raises MemoryUnknown for a pod whose containers would be limited by what nobody knows.
        """
        request = gpu_request(pod)
        if not request.is_shared:
            return {}
        text = limits_text(pod, request, self._devices(binding.node, binding.devices))
        if not is_limited(pod):
            self._warn(pod, NOT_LIMITED, _NO_LIBRARY)
        elif not text:
            raise MemoryUnknown(
                f"how much memory the GPUs of node {binding.node} have is said by no slice, no agent (GpuNode) and no "
                f"label {GPU_MEMORY_LABEL}: a part of one is not started without a limit"
            )
        return {GPU_MEMORY_LIMITS_ANNOTATION: text}

    def _devices(self, node: str, indices: tuple[int, ...]) -> Iterator[Device]:
        published, known = self._published().get(node), self._gpu_node(node)
        states = {} if known is None else {state.index: state for state in known.spec.gpus}
        labelled_bytes = (whole_number(self._labels(node).get(GPU_MEMORY_LABEL, "")) or 0) * _MIB
        for index in indices:
            state = states.get(index)
            if published is not None and index < len(published.uuids):
                yield Device(published.uuids[index], published.memory_mib * _MIB or labelled_bytes)
            elif state is not None:
                yield Device(state.uuid, state.memory_mib * _MIB or labelled_bytes)
            else:
                yield Device(memory_bytes=labelled_bytes)
