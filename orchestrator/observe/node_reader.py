"""Reads the nodes of a snapshot. A node is read again after it, or a pod of another scheduler on it, has changed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from orchestrator.cluster.objects import Node, Pod
from orchestrator.names import GPU_DRIVER, GPU_RESOURCE
from orchestrator.observe.claim_reader import ClaimReader
from orchestrator.observe.device_reader import DeviceReader
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.health import gives_gpus_twice, refuses_pods
from orchestrator.observe.request import Held, held_on_node
from orchestrator.observe.snapshot import planner_node
from orchestrator.observe.unreadable import Boundary, SkippedObject, SkippedPod, Unreadable
from orchestrator.planner import model

TWICE: Final = (
    f"its GPUs are given to pods twice, as {GPU_RESOURCE} by a device plugin and in slices by {GPU_DRIVER}: "
    "remove one of the two from it"
)

REFUSES: Final = (
    "GPU {indices} does not answer, and NVIDIA's device plugin then gives pods none of its GPUs. "
    "No pod is placed there; pods on its other GPUs continue"
)

_NOTHING: Final[Mapping[str, tuple[Pod, Held]]] = MappingProxyType({})
_UNKNOWN: Final = Held(None, None, scalars=None)


class NodeReader:
    """The nodes, sorted by name, with the amounts that pods outside of workloads use."""

    def __init__(
        self,
        devices: DeviceReader,
        claims: ClaimReader,
        boundary: Boundary,
        is_ours: Callable[[str], bool],
    ) -> None:
        self._devices = devices
        self._claims = claims
        self._is_ours = is_ours
        self._boundary = boundary
        self._nodes: dict[str, Node] = {}
        self._foreign: dict[str, dict[str, tuple[Pod, Held]]] = {}
        self._node_of_foreign: dict[str, str] = {}
        self._made: dict[str, model.Node] = {}
        self._unreadable: dict[str, Unreadable] = {}
        self._refusing: dict[str, tuple[int, ...]] = {}
        self._touched: set[str] = set()
        self._sorted: tuple[model.Node, ...] | None = None

    def note(self, node: Node, *, is_there: bool) -> None:
        """Apply a change of a node."""
        put(self._nodes, node.metadata.name, node if is_there else None)
        self._touched.add(node.metadata.name)

    def note_foreign(self, pod: Pod, node: str) -> None:
        """Apply a change of a pod that is in no workload. `node` is its node, "" if it has none or has ended."""
        uid = pod.metadata.uid
        before = self._node_of_foreign.get(uid, "")
        if before:
            discard(self._foreign, before, uid)
            self._touched.add(before)
        if node:
            held = Unreadable(pod.why) if isinstance(pod, SkippedPod) else self._held(pod)
            if isinstance(held, Unreadable):
                held = replace(_UNKNOWN, problem=held.why)
            self._foreign.setdefault(node, {})[uid] = (pod, held)
            self._touched.add(node)
        put(self._node_of_foreign, uid, node or None)

    def touch(self, name: str) -> None:
        """Mark the node to be read again, because foreign devices on it changed."""
        self._touched.add(name)

    def read(self) -> tuple[model.Node, ...]:
        """Return the nodes that can be read, sorted by name."""
        for name in self._touched:
            node = self._read(name)
            put(self._unreadable, name, node if isinstance(node, Unreadable) else None)
            node = node if isinstance(node, model.Node) else None
            if node != self._made.get(name):
                put(self._made, name, node)
                self._sorted = None
        self._touched.clear()
        if self._sorted is None:
            self._sorted = tuple(self._made[name] for name in sorted(self._made))
        return self._sorted

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the nodes that are skipped or get no pods with GPUs, and unreadable pods of other schedulers."""
        for name, published in self._claims.slices.gpus().items():
            node = self._nodes.get(name)
            if node is not None and gives_gpus_twice(node, published):
                why = f"{TWICE}; no pod is placed there"
                yield SkippedObject("Node", "", name, node.metadata.uid, why)
        for name, indices in self._refusing.items():
            why = REFUSES.format(indices=", ".join(map(str, indices)))
            yield SkippedObject("Node", "", name, self._nodes[name].metadata.uid, why)
        for name, unreadable in self._unreadable.items():
            yield SkippedObject("Node", "", name, self._nodes[name].metadata.uid, unreadable.why)
        for pods in self._foreign.values():
            for pod, held in pods.values():
                if held.problem:
                    why = f"{held.problem}; as much as its node has counts as held"
                    yield SkippedObject.of("Pod", pod.metadata, why)

    def _read(self, name: str) -> model.Node | Unreadable | None:
        node = self._nodes.get(name)
        published = self._claims.slices.gpus().get(name)
        put(self._refusing, name, (refuses_pods(node, published) or None) if node else None)
        if node is None:
            return None
        held = [use for _, use in self._foreign.get(name, _NOTHING).values()]
        by_claims = self._claims.foreign_gpus(name, self._is_ours)
        devices = tuple(sorted({*self._devices.foreign_devices(name), *by_claims}))
        made = self._boundary.read(
            "Node", node.metadata, lambda: planner_node(node, held, devices, published)
        )
        if any(isinstance(pod, SkippedPod) for pod, _ in self._foreign.get(name, _NOTHING).values()):
            return made if isinstance(made, Unreadable) else replace(made, schedulable=False)
        return made

    def _held(self, pod: Pod) -> Held | Unreadable:
        return self._boundary.read("Pod", pod.metadata, lambda: held_on_node(pod))
