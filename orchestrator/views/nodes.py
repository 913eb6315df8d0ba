"""The content of `list nodes`, `get node` and `top node`: nodes joined with the pods on them. Pure.

The allocation is the requests of pods that have not ended, as the scheduler counts them. The use is measured by the
node's kubelet, and unknown without it. The agent of the node reports single GPUs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.cluster.objects import Node, Pod, Wire
from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.cluster.wire import has_condition
from orchestrator.observe.claim_reader import gets_gpus_by_claims
from orchestrator.observe.device_reader import DeviceReader
from orchestrator.observe.health import NodeHealth, gpu_memory_mib, host_fault, node_health
from orchestrator.observe.holdings import held_request
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.observe.request import (
    UnreadableRequest,
    devices_of,
    gpu_request,
    is_admitted,
    pod_request,
)
from orchestrator.planner.model import DEVICE_MILLI
from orchestrator.views import gpus as gpu_records
from orchestrator.views.gpus import GpuView

GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Usage:
    """The measurements of a kubelet; None without a report."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod on a node, and its devices."""

    namespace: str
    name: str
    uid: str
    gpu_milli: int
    cpu_milli: int
    memory_bytes: int
    devices: str
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as people see it.

    `unhealthy` is the problem of the node, or "". `unhealthy_gpus` are the indices of the unusable GPUs, as far as they
    are known. `host_fault` is the fault that its agent reports, or "". `gpu_memory_bytes` is the memory of each of its
    GPUs, 0 if unknown.
    """

    name: str
    uid: str
    is_ready: bool
    is_cordoned: bool
    role: str
    address: str
    node_type: str
    gpu_product: str
    gpu_memory_bytes: int
    gpu_milli: int
    gpu_unhealthy_milli: int
    unhealthy: str
    cpu_milli: int
    memory_bytes: int
    pods: tuple[NodePod, ...] = field(repr=False)
    usage: Usage = Usage()
    gpus: tuple[GpuView, ...] = field(default=(), repr=False)
    unhealthy_gpus: tuple[int, ...] = ()
    host_fault: str = ""

    @property
    def unhealthy_gpus_text(self) -> str:
        """The number of unusable GPUs and their indices: `3 (GPU 3,5 and 1 of unknown index)`; "" without any."""
        if not self.gpu_unhealthy_milli:
            return ""
        unknown = self.gpu_unhealthy_milli // DEVICE_MILLI - len(self.unhealthy_gpus)
        words = [f"GPU {','.join(map(str, self.unhealthy_gpus))}"] if self.unhealthy_gpus else []
        words += [f"{unknown} of unknown index"] if unknown else []
        return f"{format_gpu(self.gpu_unhealthy_milli)} ({' and '.join(words)})"

    @property
    def status(self) -> str:
        """`ready` or `notReady`, and whether it takes no new pods."""
        word = "ready" if self.is_ready else "notReady"
        return f"{word},cordoned" if self.is_cordoned else word

    @property
    def gpu_allocated_milli(self) -> int:
        """The GPUs of its pods."""
        return sum(pod.gpu_milli for pod in self.pods)

    @property
    def gpu_free_milli(self) -> int:
        """The GPUs for new pods. None on a node that is not ready or cordoned."""
        return self._gpu_unused_milli if self._takes_pods else 0

    @property
    def gpu_closed_milli(self) -> int:
        """The GPUs that would be free if the node were ready and not cordoned."""
        return 0 if self._takes_pods else self._gpu_unused_milli

    @property
    def _takes_pods(self) -> bool:
        return self.is_ready and not self.is_cordoned

    @property
    def _gpu_unused_milli(self) -> int:
        return max(0, self.gpu_milli - self.gpu_unhealthy_milli - self.gpu_allocated_milli)

    @property
    def cpu_allocated_milli(self) -> int:
        """The CPU requests of its pods."""
        return sum(pod.cpu_milli for pod in self.pods)

    @property
    def memory_allocated_bytes(self) -> int:
        """The memory requests of its pods."""
        return sum(pod.memory_bytes for pod in self.pods)


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """The GPUs of several nodes together, in thousandths of a device.

    `closed_milli` are the GPUs on nodes that are not ready or cordoned, without the unhealthy and the allocated ones.
    `idle_milli` are the GPUs that are allocated and idle; None without an agent's report.
    """

    gpu_milli: int
    allocated_milli: int
    unhealthy_milli: int
    closed_milli: int
    idle_milli: int | None

    @property
    def free_milli(self) -> int:
        """The available GPUs: neither allocated nor unhealthy, on nodes that take new pods."""
        return max(0, self.gpu_milli - self.unhealthy_milli - self.closed_milli - self.allocated_milli)

    @property
    def allocated_percent(self) -> int | None:
        """The allocated portion of all GPUs; None without GPUs."""
        return self.allocated_milli * 100 // self.gpu_milli if self.gpu_milli else None


def gpu_totals(views: Iterable[NodeView]) -> GpuTotals:
    """Return the GPUs of the nodes together."""
    nodes = list(views)
    gpus = [gpu for view in nodes for gpu in view.gpus]
    return GpuTotals(
        gpu_milli=sum(view.gpu_milli for view in nodes),
        allocated_milli=sum(view.gpu_allocated_milli for view in nodes),
        unhealthy_milli=sum(view.gpu_unhealthy_milli for view in nodes),
        closed_milli=sum(view.gpu_closed_milli for view in nodes),
        idle_milli=sum(DEVICE_MILLI for gpu in gpus if gpu.idle_seconds is not None) if gpus else None,
    )


class _Cpu(Wire, frozen=True):
    usage_nano_cores: int | None = None


class _Memory(Wire, frozen=True):
    working_set_bytes: int | None = None


class _PodReference(Wire, frozen=True):
    uid: str = ""


class _NodeFigures(Wire, frozen=True):
    node_name: str = ""
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class _PodFigures(Wire, frozen=True):
    pod_ref: _PodReference = _PodReference()
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class Summary(Wire, frozen=True):
    """A kubelet's answer at `/stats/summary`: the fields that muster reads."""

    node: _NodeFigures = _NodeFigures()
    pods: list[_PodFigures] = []

    @property
    def node_name(self) -> str:
        """The name of the node, as its kubelet gives it."""
        return self.node.node_name

    def usage(self) -> Usage:
        """Return the use of the whole node."""
        return _usage(self.node)

    def usage_by_pod(self) -> dict[str, Usage]:
        """Return the use of each pod, by its uid."""
        return {pod.pod_ref.uid: _usage(pod) for pod in self.pods}


def node_views(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    summaries: Mapping[str, Summary] | None = None,
    gpus: Mapping[str, tuple[GpuView, ...]] | None = None,
    published: Mapping[str, PublishedGpus] | None = None,
) -> list[NodeView]:
    """Return the nodes, sorted by name. `summaries`, `gpus` and `published` are by the name of the node."""
    by_name = sorted(nodes, key=lambda node: node.metadata.name)
    on_node: dict[str, list[Pod]] = {}
    devices = DeviceReader()
    for node in by_name:
        devices.note_node(node, is_there=True)
    for pod in pods:
        if pod.spec.node_name and pod.status.phase not in _ENDED:
            on_node.setdefault(pod.spec.node_name, []).append(pod)
            is_foreign = pod.spec.scheduler_name != names.SCHEDULER_NAME
            devices.note_pod(pod, is_there=not gets_gpus_by_claims(pod), is_foreign=is_foreign)
    for _ in devices.read():
        pass
    measured, by_driver = summaries or {}, published or {}
    views = (
        _view(
            node,
            on_node.get(node.metadata.name, ()),
            devices,
            measured.get(node.metadata.name),
            by_driver.get(node.metadata.name),
        )
        for node in by_name
    )
    return [replace(view, gpus=(gpus or {}).get(view.name, ())) for view in views]


def record(view: NodeView) -> dict[str, Any]:
    """Return the node for `-o json` and `-o yaml`; unmeasured figures are null."""
    return {
        "name": view.name,
        "status": view.status,
        "ready": view.is_ready,
        "cordoned": view.is_cordoned,
        "role": view.role,
        "address": view.address,
        "type": view.node_type,
        "gpuProduct": view.gpu_product,
        "gpuMemoryBytes": view.gpu_memory_bytes or None,
        "gpus": format_gpu(view.gpu_milli),
        "gpusAllocated": format_gpu(view.gpu_allocated_milli),
        "unhealthy": view.unhealthy,
        "hostFault": view.host_fault,
        "gpusUnhealthy": format_gpu(view.gpu_unhealthy_milli),
        "gpuIndexesUnhealthy": list(view.unhealthy_gpus),
        "cpuMilli": view.cpu_milli,
        "cpuMilliAllocated": view.cpu_allocated_milli,
        "cpuMilliUsed": view.usage.cpu_milli,
        "memoryBytes": view.memory_bytes,
        "memoryBytesAllocated": view.memory_allocated_bytes,
        "memoryBytesUsed": view.usage.memory_bytes,
        "gpuDetails": [gpu_records.record(gpu) for gpu in view.gpus],
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "gpus": format_gpu(pod.gpu_milli),
                "gpuDevices": pod.devices,
                "cpuMilli": pod.cpu_milli,
                "cpuMilliUsed": pod.usage.cpu_milli,
                "memoryBytes": pod.memory_bytes,
                "memoryBytesUsed": pod.usage.memory_bytes,
            }
            for pod in view.pods
        ],
    }


def _view(
    node: Node,
    pods: Iterable[Pod],
    devices: DeviceReader,
    summary: Summary | None,
    published: PublishedGpus | None,
) -> NodeView:
    metadata, status = node.metadata, node.status
    memory_mib = gpu_memory_mib(node, published)
    used = summary.usage_by_pod() if summary else {}
    health = _health(node, published)
    return NodeView(
        name=metadata.name,
        uid=metadata.uid,
        is_ready=has_condition(status.conditions, "Ready") is not None,
        is_cordoned=node.spec.unschedulable,
        role=_role(metadata.labels),
        address=_address(node),
        node_type=metadata.labels.get(names.NODE_TYPE_LABEL, ""),
        gpu_product=metadata.labels.get(GPU_PRODUCT_LABEL) or (published.model if published else ""),
        gpu_memory_bytes=memory_mib << 20,
        gpu_milli=health.gpu_count * DEVICE_MILLI,
        gpu_unhealthy_milli=(len(health.unhealthy_gpus) + health.lost_gpus) * DEVICE_MILLI,
        unhealthy=health.unhealthy,
        cpu_milli=_amount(status.allocatable or status.capacity, "cpu", cpu_milli),
        memory_bytes=_amount(status.allocatable or status.capacity, "memory", memory_bytes),
        pods=tuple(
            _pod(pod, devices.devices(pod.metadata.uid), memory_mib, used.get(pod.metadata.uid, Usage()))
            for pod in sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
        ),
        usage=summary.usage() if summary else Usage(),
        unhealthy_gpus=health.unhealthy_gpus,
        host_fault=host_fault(node)[0],
    )


def _health(node: Node, published: PublishedGpus | None) -> NodeHealth:
    """Return the health of a node. If its GPUs cannot be counted, it has no GPUs, and the reason is in `unhealthy`."""
    try:
        return node_health(node, published)
    except ValueError as error:
        return NodeHealth(gpu_count=0, unhealthy=f"it cannot be read: {error}")


def _pod(pod: Pod, held: tuple[int, ...] | None, memory_mib: int, used: Usage) -> NodePod:
    """Return the view of a pod.

    `held` are the pod's devices; None: the devices in its annotation count.
    """
    try:
        request = pod_request(pod)
    except UnreadableRequest:
        request = gpu_request(pod)
    # A pod that gets GPU fractions by claims counts with its fractions. Its annotation names whole GPUs, which other
    # pods share.
    if held is None and gets_gpus_by_claims(pod) and is_admitted(pod) and not request.is_shared:
        held_by_claims = devices_of(pod)
        request = replace(request, gpu_count=len(held_by_claims))
    elif held is not None:
        request = held_request(request, held)
    metadata = pod.metadata
    return NodePod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        gpu_milli=request.gpu_milli_on(memory_mib),
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        devices=metadata.annotations.get(names.GPU_DEVICES_ANNOTATION, "") if held is None else "",
        usage=used,
    )


def _amount(amounts: Mapping[str, str | int], name: str, convert: Callable[[str], int]) -> int:
    try:
        return convert(str(amounts.get(name, 0)))
    except ValueError:
        return 0


def _role(labels: Mapping[str, str]) -> str:
    roles = [key.removeprefix(_ROLE_PREFIX) for key in sorted(labels) if key.startswith(_ROLE_PREFIX)]
    return ",".join(filter(None, roles)) or "<none>"


def _address(node: Node) -> str:
    by_type = {address.type: address.address for address in node.status.addresses}
    return by_type.get("InternalIP") or by_type.get("ExternalIP") or ""


def _usage(figures: _NodeFigures | _PodFigures) -> Usage:
    nano_cores = figures.cpu.usage_nano_cores if figures.cpu else None
    return Usage(
        cpu_milli=None if nano_cores is None else -(-nano_cores // 1_000_000),
        memory_bytes=figures.memory.working_set_bytes if figures.memory else None,
    )
