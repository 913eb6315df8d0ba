"""The devices that drivers publish in ResourceSlices, and the DeviceClasses that select among them."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from orchestrator.cluster.device_objects import DeviceClass, ResourceSlice
from orchestrator.devices import model as dra
from orchestrator.devices.inventory import is_overfull
from orchestrator.names import GPU_RESOURCE
from orchestrator.observe.claim_amounts import GpuClasses
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.published_gpus import PublishedGpus, gpus_by_node
from orchestrator.observe.resource_claims import read_class, read_slice
from orchestrator.observe.unreadable import Boundary, ReadObjects, SkippedObject, Unreadable

T = TypeVar("T")

_NO_SLICES: Final[Mapping[str, dra.ResourceSlice]] = MappingProxyType({})


class SliceReader:
    """ResourceSlices and DeviceClasses by name."""

    def __init__(self, boundary: Boundary) -> None:
        self._objects = ReadObjects(boundary)
        self._slices: dict[str, dra.ResourceSlice] = {}
        self._classes: dict[str, dra.DeviceClass] = {}
        self._extended: dict[str, str] = {}
        self._slices_of: dict[dra.PoolId, dict[str, dra.ResourceSlice]] = {}
        self._pools_of: dict[str, dict[dra.PoolId, None]] = {}
        self._gpus: dict[str, PublishedGpus] = {}
        self._gpu_classes: GpuClasses | None = None

    def note_class(self, changed: DeviceClass, *, is_there: bool) -> None:
        """Apply a change of a class."""
        name = changed.metadata.name
        put(self._classes, name, self._read(changed, is_there, lambda: read_class(changed)))
        put(self._extended, name, changed.spec.extended_resource_name if is_there else None)
        self._gpu_classes = None

    def note_slice(self, changed: ResourceSlice, *, is_there: bool) -> set[str]:
        """Apply a change of a slice. Return the names of the nodes whose GPUs changed."""
        name = changed.metadata.name
        published = self._read(changed, is_there, lambda: read_slice(changed))
        before = self._slices.get(name)
        put(self._slices, name, published)
        if before is not None:
            discard(self._slices_of, before.pool_id, name)
        if published is not None:
            self._slices_of.setdefault(published.pool_id, {})[name] = published
        nodes = {node for node in self._near(before, published) if self._count_gpus(node)}
        if nodes:
            self._gpu_classes = None
        return nodes

    @property
    def gpu_class(self) -> str | None:
        """The name of the DeviceClass for pods that request GPUs without a ResourceClaim: the first by name, or
        None.
        """
        return min(
            (name for name, resource in self._extended.items() if resource == GPU_RESOURCE), default=None
        )

    @property
    def slices(self) -> tuple[dra.ResourceSlice, ...]:
        """The slices, sorted by name."""
        return tuple(self._slices[name] for name in sorted(self._slices))

    @property
    def classes(self) -> tuple[dra.DeviceClass, ...]:
        """The classes, sorted by name."""
        return tuple(self._classes[name] for name in sorted(self._classes))

    def gpus(self) -> Mapping[str, PublishedGpus]:
        """Return the published GPUs by node."""
        return self._gpus

    def classes_of_gpus(self) -> GpuClasses:
        """Return the classes whose devices are GPUs."""
        if self._gpu_classes is None:
            samples = {sample for gpus in self.gpus().values() for sample in gpus.samples}
            most = max((len(gpus.ids) for gpus in self.gpus().values()), default=0)
            self._gpu_classes = GpuClasses(self._classes, samples, most)
        return self._gpu_classes

    def is_overfull(self, device_id: dra.DeviceId, consumed: Mapping[str, int]) -> bool:
        """Return whether an amount in `consumed` (billionths, by capacity) exceeds the device's capacity."""
        return is_overfull(self._slices_of.get(device_id[:2], _NO_SLICES).values(), device_id, consumed)

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the slices and classes that cannot be read."""
        yield from self._objects.skipped()

    def _read(self, changed: ResourceSlice | DeviceClass, is_there: bool, read: Callable[[], T]) -> T | None:
        if not is_there:
            self._objects.forget(changed.metadata)
            return None
        outcome = self._objects.read(type(changed).__name__, changed.metadata, read)
        return None if isinstance(outcome, Unreadable) else outcome

    def _near(self, *slices: dra.ResourceSlice | None) -> set[str]:
        """Return the nodes of these slices and of other slices in their pools, and store the pools of each node."""
        nodes: set[str] = set()
        for listed in filter(None, slices):
            for other in (listed, *self._slices_of.get(listed.pool_id, _NO_SLICES).values()):
                if other.nodes.node_name:
                    nodes.add(other.nodes.node_name)
                    self._pools_of.setdefault(other.nodes.node_name, {})[other.pool_id] = None
        return nodes

    def _count_gpus(self, node: str) -> bool:
        """Compute the GPUs of a node from the slices of its pools. Return whether they changed."""
        before = self._gpus.get(node)
        slices = (
            listed
            for pool_id in self._pools_of[node]
            for listed in self._slices_of.get(pool_id, _NO_SLICES).values()
        )
        put(self._gpus, node, gpus_by_node(slices).get(node))
        return self._gpus.get(node) != before
