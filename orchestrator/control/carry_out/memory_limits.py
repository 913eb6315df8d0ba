"""Computes the GPU memory limits of a pod with a GPU fraction, an amount for each GPU.

The binding writes them on the pod.

The real memory of a node's GPUs comes from the first of these sources that has it:

- the ResourceSlices of a driver
- the GpuNode of the node's agent
- the label of NVIDIA's feature discovery, which is one value for the node
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
    """The memory of the node's GPUs is unknown, so no limit can be computed for a container with a GPU fraction."""


class MemoryLimits:
    """Computes limits from the GpuNode, the published GPUs and the labels of a node, which functions return by the
    node's name.

    `warn` is called for pods that run without a limit.
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
        """Return the annotations with the limits for this binding; empty for a pod without a GPU fraction.

        Raises MemoryUnknown for a pod whose limits depend on unknown memory.
        """
        request = gpu_request(pod)
        if not request.is_shared:
            return {}
        text = limits_text(pod, request, self._devices(binding.node, binding.devices))
        if not is_limited(pod):
            self._warn(pod, NOT_LIMITED, _NO_LIBRARY)
        elif not text:
            raise MemoryUnknown(
                f"the memory of the GPUs of node {binding.node} is unknown: no ResourceSlice, GpuNode or label "
                f"{GPU_MEMORY_LABEL} has it. A GPU fraction does not start without a limit"
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
