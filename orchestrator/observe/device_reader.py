"""Computes the GPUs that bound pods of all namespaces hold. After a change, only the changed nodes are computed again.

On most nodes muster bound every pod, so the annotations name all devices. On other nodes, devices are assigned in this
order:

1. pods that muster bound or is binding
2. other pods that the kubelet has admitted
3. nominations
4. other pods

So a pod that a user bound to a node by hand does not get devices that are nominated there.

A device plugin chooses the GPUs of a pod itself. If the agent has reported these GPUs, the report counts for pods of
every scheduler. Before the report, muster's annotation counts, unless another pod holds the GPU.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from orchestrator.cluster.objects import FINISHED, Node, Pod
from orchestrator.cluster.quantity import shortened
from orchestrator.names import GPU_DEVICES_ANNOTATION, SCHEDULER_NAME
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.gpu_shares import shares_of
from orchestrator.observe.health import gpu_memory_mib, node_health
from orchestrator.observe.holdings import NO_GPUS, GpuNode, NodeDevices
from orchestrator.observe.nominations import nomination_of
from orchestrator.observe.request import concerns_gpus, devices_of, gpu_request, is_admitted
from orchestrator.observe.unreadable import SkippedObject
from orchestrator.planner.model import Request

_NOTHING: Final[Mapping[str, "Tenant"]] = {}
_NO_NOMINATIONS: Final[Mapping[str, tuple[Request, tuple[int, ...]]]] = {}
_NOTHING_GIVEN: Final["Given"] = {}
_NO_GPU_NODE: Final = GpuNode(0)

NominatedDevices = dict[str, dict[str, tuple[Request, tuple[int, ...]]]]
"""The request and the nominated devices of pods, by node and pod uid."""


Given = Mapping[tuple[str, str], tuple[int, ...]]
"""The GPUs of one node that the kubelet gave to pods, by namespace and name of the pod."""


class Tenant(NamedTuple):
    """A bound pod that can use GPUs, and its request. `is_foreign`: the pod is in no project, so the scheduler
    decides nothing about it.
    """

    pod: Pod
    request: Request
    is_foreign: bool


class Miscounted(NamedTuple):
    """A pod that muster bound, and the GPUs that the kubelet gave it instead of the GPUs in its annotation."""

    pod: Pod
    given: tuple[int, ...]


class DeviceReader:
    """The bound pods that hold GPUs, and their devices, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._admitted: dict[str, dict[str, Tenant]] = {}
        self._others: dict[str, dict[str, Tenant]] = {}
        self._node_of: dict[str, str] = {}
        self._nominated: dict[str, Pod] = {}
        self._devices: dict[str, tuple[int, ...]] = {}
        self._given: dict[str, Given] = {}
        self._nominated_devices: NominatedDevices = {}
        self._touched: set[str] = set()
        self._miscounted: dict[str, tuple[Miscounted, ...]] = {}

    def note_node(self, node: Node, *, is_there: bool) -> None:
        """Apply a change of a node."""
        put(self._nodes, node.metadata.name, node if is_there else None)
        self._touched.add(node.metadata.name)

    def note_given(self, node: str, given: Given) -> None:
        """Apply an agent's report of the GPUs that pods of its node have."""
        if self._given.get(node, _NOTHING_GIVEN) == given:
            return
        self._given[node] = given
        self._others.setdefault(node, {}).update(self._admitted.pop(node, {}))
        self._touched.add(node)

    def note_pod(self, pod: Pod, *, is_there: bool, is_foreign: bool) -> None:
        """Apply a change of a pod of any namespace and scheduler."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        waits = is_there and not node and pod.spec.scheduler_name == SCHEDULER_NAME
        put(self._nominated, uid, pod if waits and pod.status.nominated_node_name else None)
        before = self._node_of.get(uid)
        if before is not None:
            discard(self._admitted, before, uid)
            discard(self._others, before, uid)
            self._touched.add(before)
        holds = bool(is_there and node and pod.status.phase not in FINISHED and concerns_gpus(pod))
        if holds:
            tenant = Tenant(pod, gpu_request(pod, with_parts=not is_foreign), is_foreign)
            is_plain = _is_as_muster_writes(tenant) and node not in self._given
            group = self._admitted if is_plain else self._others
            group.setdefault(node, {})[uid] = tenant
            self._touched.add(node)
        put(self._node_of, uid, node if holds else None)
        if before != node or uid not in self._others.get(node, _NOTHING):
            self._devices.pop(uid, None)

    def devices(self, uid: str) -> tuple[int, ...] | None:
        """Return the derived devices of a bound pod; None if its annotation counts or it has no GPUs."""
        return self._devices.get(uid)

    def foreign_devices(self, node: str) -> tuple[int, ...]:
        """Return the devices of the node that foreign pods hold."""
        tenants = self._others.get(node, _NOTHING)
        held = (self._devices.get(uid, NO_GPUS) for uid, tenant in tenants.items() if tenant.is_foreign)
        return tuple(sorted(device for devices in held for device in devices))

    def read(self) -> Iterator[Tenant]:
        """Compute the devices on changed nodes again, and yield the pods whose devices changed."""
        if self._others:
            self._take_nominations()
        for name in self._touched:
            tenants = self._others.get(name, _NOTHING)
            assigned = _assigned(tenants, self._given.get(name, _NOTHING_GIVEN))
            devices = self._work_out(name, tenants, assigned) if tenants else {}
            put(self._miscounted, name, tuple(_miscounted(tenants, assigned)) or None)
            for uid, tenant in tenants.items():
                if self._devices.get(uid) != devices[uid]:
                    self._devices[uid] = devices[uid]
                    yield tenant
        self._touched.clear()

    def miscounted(self) -> Iterator[Miscounted]:
        """Yield the pods whose annotations differ from the GPUs that the kubelets gave them."""
        for entries in self._miscounted.values():
            yield from entries

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the pods whose devices differ from their annotation, with the difference."""
        for tenants in self._others.values():
            for uid, tenant in tenants.items():
                devices = self._devices.get(uid, NO_GPUS)
                is_plain = _is_as_muster_writes(tenant) and len(devices) == len(devices_of(tenant.pod))
                if not tenant.is_foreign and not is_plain:
                    why = _why(tenant, devices)
                    yield SkippedObject.of("Pod", tenant.pod.metadata, why)

    def _take_nominations(self) -> None:
        """Store the devices of nominated pods, and mark the nodes on which these changed."""
        before = self._nominated_devices
        after: NominatedDevices = {}
        for uid, pod in self._nominated.items():
            nomination = nomination_of(pod)
            if nomination is not None:
                after.setdefault(nomination.node, {})[uid] = (gpu_request(pod), nomination.devices)
        self._touched.update(
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        )
        self._nominated_devices = after

    def _work_out(
        self, name: str, tenants: Mapping[str, Tenant], assigned: dict[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """Return the devices by pod uid: of pods that muster did not bind, or of all pods if there is an agent's
        report.
        """
        node = NodeDevices(self._gpus_of(name))
        for uid, devices in assigned.items():
            node.occupy(tenants[uid].request, devices)
        for tenant in self._admitted.get(name, _NOTHING).values():
            node.occupy(tenant.request, devices_of(tenant.pod))
        in_order = [
            tenants[uid] for uid in sorted(tenants, key=lambda uid: _age(tenants[uid])) if uid not in assigned
        ]
        admitted = [tenant for tenant in in_order if _is_as_muster_writes(tenant)]
        # fractions first, because their reservation pod holds exactly this GPU; a request for whole GPUs can
        # have any
        admitted.sort(key=lambda tenant: not tenant.request.is_shared)
        held = assigned | _settle(node, admitted)
        in_order = [tenant for tenant in in_order if tenant.pod.metadata.uid not in held]
        held |= _settle(node, (tenant for tenant in in_order if _is_there(tenant)))
        for request, devices in self._nominated_devices.get(name, _NO_NOMINATIONS).values():
            node.occupy(request, devices)
        return held | _settle(node, (tenant for tenant in in_order if not _is_there(tenant)))

    def _gpus_of(self, name: str) -> GpuNode:
        node = self._nodes.get(name)
        try:
            health = None if node is None else node_health(node)
        except ValueError:
            health = None
        if node is None or health is None:
            return _NO_GPU_NODE
        return GpuNode(health.gpu_count, health.unhealthy_gpus, health.lost_gpus, gpu_memory_mib(node))


def _assigned(tenants: Mapping[str, Tenant], given: Given) -> dict[str, tuple[int, ...]]:
    """Return, by uid, the devices that an agent's report gives for pods.

    These are pods that hold the requested number of whole GPUs, and pods with fractions of reserved GPUs.
    """
    answer = {}
    for uid, tenant in tenants.items() if given else ():
        devices = given.get((tenant.pod.metadata.namespace, tenant.pod.metadata.name), NO_GPUS)
        if devices and not tenant.request.is_shared and len(devices) == tenant.request.gpu_count:
            answer[uid] = devices
        elif tenant.request.is_shared and (shares := shares_of(tenant.pod)):
            answer[uid] = tuple(share.index for share in shares)
    return answer


def _miscounted(
    tenants: Mapping[str, Tenant], assigned: Mapping[str, tuple[int, ...]]
) -> Iterator[Miscounted]:
    for uid, devices in assigned.items():
        tenant = tenants[uid]
        if (
            _is_as_muster_writes(tenant)
            and not tenant.request.is_shared
            and devices_of(tenant.pod) != devices
        ):
            yield Miscounted(tenant.pod, devices)


def _is_as_muster_writes(tenant: Tenant) -> bool:
    """Return whether muster bound the pod, and its annotation has the requested number of devices."""
    if tenant.is_foreign or not is_admitted(tenant.pod):
        return False
    request = tenant.request
    return len(devices_of(tenant.pod)) == (request.shared_devices if request.is_shared else request.gpu_count)


def _is_there(tenant: Tenant) -> bool:
    """Return whether the kubelet has admitted the pod, or the pod is foreign."""
    return tenant.is_foreign or bool(tenant.pod.status.start_time)


def _age(tenant: Tenant) -> tuple[bool, str, str, str]:
    """Return the sort key: foreign pods first, because they cannot be evicted, then by age."""
    metadata = tenant.pod.metadata
    return not tenant.is_foreign, metadata.creation_timestamp, metadata.name, metadata.uid


def _settle(node: NodeDevices, tenants: Iterable[Tenant]) -> dict[str, tuple[int, ...]]:
    """Assign devices to these pods one after the other. Return the devices by uid.

    If the devices in the annotation of a pod of muster are free, the pod gets these devices.
    """
    held = {}
    for tenant in tenants:
        pod, request = tenant.pod, tenant.request
        devices = devices_of(pod) if pod.spec.scheduler_name == SCHEDULER_NAME else NO_GPUS
        if not (devices and node.fits(request, devices)):
            devices = node.choose(request)
        node.occupy(request, devices)
        held[pod.metadata.uid] = devices
    return held


def _why(tenant: Tenant, devices: tuple[int, ...]) -> str:
    pod, request = tenant.pod, tenant.request
    requested = request.shared_devices if request.is_shared else request.gpu_count
    counts = f"{len(devices)} GPU{'' if len(devices) == 1 else 's'}"
    if request.is_shared:
        counts = f"its part of {counts}"
    words = []
    if not is_admitted(pod):
        words.append("another scheduler bound it: GPUs over its project's quota may be reclaimed")
    written = pod.metadata.annotations.get(GPU_DEVICES_ANNOTATION)
    if written is not None and devices_of(pod) != devices:
        words.append(f"its annotation {GPU_DEVICES_ANNOTATION} is {shortened(written)} and ignored")
    if len(devices) < requested:
        words.append(f"its node {pod.spec.node_name} has no more for it")
    words.append(f"it counts as holding {counts}" if devices else "it counts as holding no GPU")
    return "; ".join(words)
