"""Sets of nodes as integers: bit `n` stands for the node at position `n`.

These results need only a few operations on whole sets, for any number of nodes:

- the nodes that admit a pod
- the nodes that could run the pod if they were empty
- the total of a set of nodes

So the constraints of a pod are evaluated in microseconds, even if every pod has different constraints.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from orchestrator.labels import LabelRequirement, matches_requirement
from orchestrator.planner.model import (
    DEVICE_MILLI,
    Amounts,
    Constraints,
    Node,
    Project,
    Request,
    Scalars,
    Taint,
    Toleration,
    Workload,
)
from orchestrator.planner.traits import NAME_LABELS

NodeSet = int

_Value = TypeVar("_Value", bound=Hashable)

MAX_CACHED = 20_000
"""Maximum number of entries in one cache. A full cache is emptied, because a cluster state can exist for weeks."""

MAX_CACHED_SCALARS = 256
"""Maximum number of cached columns of other resources: users choose the names of the resources that pods request."""

_FEW_AMOUNTS = 8

CORDONED_TAINT = "node.kubernetes.io/unschedulable"
"""The taint that Kubernetes' node controller sets on a cordoned node."""


def node_set(positions: Iterable[int], size: int) -> NodeSet:
    """Return the set of the nodes at these positions; `size` is the number of nodes."""
    digits = bytearray(b"0" * (size + 1))
    for position in positions:
        digits[size - position] = ord("1")
    return int(digits, 2)


def positions_in(nodes: NodeSet) -> Iterator[int]:
    """Yield the positions of the nodes in the set, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


class Column:
    """One amount for every node, stored as one set of nodes for each binary digit of the amounts."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self._everywhere = (1 << len(amounts)) - 1
        size = len(amounts)
        digits = range(max(amounts, default=0).bit_length())
        different = set(amounts)
        if len(different) <= _FEW_AMOUNTS:
            # Most nodes have equal amounts. So one pass over the nodes for each distinct amount is faster
            # than one for each of up to forty binary digits.
            having = {
                amount: node_set([at for at, mine in enumerate(amounts) if mine == amount], size)
                for amount in different
            }
            self._digits = [
                _union(nodes for amount, nodes in having.items() if amount >> digit & 1) for digit in digits
            ]
        else:
            self._digits = [
                node_set([at for at, amount in enumerate(amounts) if amount >> digit & 1], size)
                for digit in digits
            ]

    def total(self, nodes: NodeSet) -> int:
        """Return the sum of the amounts of the nodes in the set."""
        return sum((nodes & having).bit_count() << digit for digit, having in enumerate(self._digits))

    def most(self, nodes: NodeSet) -> int:
        """Return the largest amount of a node in the set; 0 for an empty set."""
        amount = 0
        for digit in reversed(range(len(self._digits))):
            having = nodes & self._digits[digit]
            if having:
                nodes, amount = having, amount | 1 << digit
        return amount

    def at_least(self, amount: int) -> NodeSet:
        """Return the nodes with at least this amount."""
        if amount <= 0:
            return self._everywhere
        if amount.bit_length() > len(self._digits):
            return 0
        more, equal = 0, self._everywhere
        for digit in reversed(range(len(self._digits))):
            if amount >> digit & 1:
                equal &= self._digits[digit]
            else:
                more |= equal & self._digits[digit]
                equal &= ~self._digits[digit]
        return more | equal


class NodeSets:
    """The nodes of a cluster, and the sets of them that match requirements of pods and projects. A position is an index
    in `nodes`.

    Amounts that pods of other schedulers use are subtracted, as in the capacity that projects share.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._positions = {node.name: position for position, node in enumerate(nodes)}
        self.everywhere: NodeSet = (1 << len(nodes)) - 1
        self.schedulable = self._those(position for position, node in enumerate(nodes) if node.schedulable)
        self._devices = Column([max(0, node.usable_gpus - node.foreign.gpu_count) for node in nodes])
        self._cpu_milli = Column([max(0, node.cpu_milli - node.foreign.cpu_milli) for node in nodes])
        self._memory_bytes = Column([max(0, node.memory_bytes - node.foreign.memory_bytes) for node in nodes])
        self._gpu_memory_mib = Column([node.gpu_memory_mib for node in nodes])
        self._with_slot = Column([max(0, node.pod_slots - node.foreign_pods) for node in nodes]).at_least(1)
        self._types = self._grouped(node.node_type for node in nodes)
        self._taints = self._grouped(node.taints for node in nodes)
        self._models = self._grouped(node.gpu_model for node in nodes)
        self._with_gpus = self._those(position for position, node in enumerate(nodes) if node.gpu_count)
        self._scalars: dict[str, Column] = {}
        self._labels: dict[str, Mapping[str, NodeSet]] = {}
        self._admitting: dict[tuple[Constraints, tuple[str, ...]], NodeSet] = {}
        self._capacity: dict[NodeSet, Amounts] = {}

    def admitting(self, constraints: Constraints, node_types: tuple[str, ...] = ()) -> NodeSet:
        """Return the schedulable nodes that match selector, affinity, tolerations and the project's node types."""
        key = (constraints, node_types)
        nodes = self._admitting.get(key)
        if nodes is None:
            if len(self._admitting) >= MAX_CACHED:
                self._admitting.clear()
            nodes = self._admitting[key] = self._find_admitting(constraints, node_types)
        return nodes

    def holding(self, request: Request) -> NodeSet:
        """Return the nodes that could run a pod with this request if no other pod of this scheduler ran there."""
        devices = request.shared_devices if request.is_shared else request.gpu_count
        nodes = (
            self._with_slot
            & self._devices.at_least(devices)
            & self._cpu_milli.at_least(request.cpu_milli)
            & self._memory_bytes.at_least(request.memory_bytes)
        )
        if request.gpu_memory_mib:
            # If the memory of a node's GPUs is unknown, the request takes whole GPUs.
            unknown = self.everywhere & ~self._gpu_memory_mib.at_least(1)
            nodes &= self._gpu_memory_mib.at_least(request.gpu_memory_mib) | unknown
        return nodes & self.having(request.scalars) if request.scalars else nodes

    def having(self, scalars: Scalars) -> NodeSet:
        """Return the nodes that have these amounts besides the amounts that pods of other schedulers use."""
        nodes = self.everywhere
        for name, amount in scalars:
            nodes &= self._scalar(name).at_least(amount)
        return nodes

    def largest_scalar(self, name: str, nodes: NodeSet) -> int:
        """Return the largest amount of the resource on one node of the set."""
        return self._scalar(name).most(nodes)

    def total_of_scalar(self, name: str) -> int:
        """Return the total amount of the resource on the schedulable nodes."""
        return self._scalar(name).total(self.schedulable)

    def _scalar(self, name: str) -> Column:
        column = self._scalars.get(name)
        if column is None:
            if len(self._scalars) >= MAX_CACHED_SCALARS:
                self._scalars.clear()
            foreign = [dict(node.foreign.scalars).get(name, 0) for node in self._nodes]
            column = self._scalars[name] = Column(
                [
                    max(0, node.scalars.get(name, 0) - held)
                    for node, held in zip(self._nodes, foreign, strict=True)
                ]
            )
        return column

    def largest(self, nodes: NodeSet) -> Amounts:
        """Return, for each resource, the largest amount on one node of the set."""
        return (
            self._devices.most(nodes) * DEVICE_MILLI,
            self._cpu_milli.most(nodes),
            self._memory_bytes.most(nodes),
        )

    def contains(self, nodes: NodeSet, name: str | None) -> bool:
        """Return whether the node of this name is in the set."""
        position = None if name is None else self._positions.get(name)
        return position is not None and bool(nodes >> position & 1)

    def capacity(self, nodes: NodeSet) -> Amounts:
        """Return the total amounts of the schedulable nodes of the set."""
        amounts = self._capacity.get(nodes)
        if amounts is None:
            if len(self._capacity) >= MAX_CACHED:
                self._capacity.clear()
            usable = nodes & self.schedulable
            amounts = self._capacity[nodes] = (
                self._devices.total(usable) * DEVICE_MILLI,
                self._cpu_milli.total(usable),
                self._memory_bytes.total(usable),
            )
        return amounts

    def of_model(self, model: str) -> NodeSet:
        """Return the nodes whose GPUs are of this model."""
        return self._models.get(model, 0)

    def models_in(self, nodes: NodeSet) -> list[str]:
        """Return the GPU models of the nodes in the set; an empty name stands for GPUs without a model label."""
        nodes &= self._with_gpus
        return [model for model, having in self._models.items() if nodes & having]

    def unfit_counts(self, constraints: Constraints, node_types: tuple[str, ...] = ()) -> dict[str, int]:
        """Return the number of nodes that do not admit such a pod, by reason; each node counts for its first reason."""
        unhealthy = self._those(position for position, node in enumerate(self._nodes) if node.unhealthy)
        cordoned = _union(
            having
            for taints, having in self._taints.items()
            if any(taint.key == CORDONED_TAINT for taint in taints)
        )
        left, counts = self.everywhere, {}
        for why, passing in (
            ("node type", self._of_types(node_types)),
            ("node selector or affinity", self._selected(constraints)),
            ("not ready or unhealthy", self.schedulable | ~unhealthy),
            ("cordoned", self.schedulable | ~cordoned),
            ("closed", self.schedulable),
            ("taint", self.tolerated(constraints.tolerations)),
        ):
            unfit = left & ~passing
            if unfit:
                counts[why] = unfit.bit_count()
            left &= passing
        return counts

    def _find_admitting(self, constraints: Constraints, node_types: tuple[str, ...]) -> NodeSet:
        nodes = self.schedulable & self._of_types(node_types) & self._selected(constraints)
        return nodes & self.tolerated(constraints.tolerations)

    def _of_types(self, node_types: tuple[str, ...]) -> NodeSet:
        if not node_types:
            return self.everywhere
        return _union(self._types.get(node_type, 0) for node_type in node_types)

    def _selected(self, constraints: Constraints) -> NodeSet:
        """Return the nodes that match node selector and node affinity."""
        nodes = self.everywhere
        for key, value in constraints.node_selector:
            nodes &= self.labelled(key).get(value, 0)
        return nodes & self.matching(constraints.node_terms)

    def matching(self, terms: Sequence[Iterable[LabelRequirement]]) -> NodeSet:
        """Return the nodes that match at least one of the terms; all nodes if there are no terms."""
        return _union(self._matching(term) for term in terms) if terms else self.everywhere

    def tolerated(self, tolerations: Sequence[Toleration]) -> NodeSet:
        """Return the nodes whose taints allow a pod with these tolerations."""
        return _union(
            having
            for taints, having in self._taints.items()
            if all(
                taint.effect == "PreferNoSchedule"
                or any(tolerates(toleration, taint) for toleration in tolerations)
                for taint in taints
            )
        )

    def _matching(self, term: Iterable[LabelRequirement]) -> NodeSet:
        nodes = self.everywhere
        for requirement in term:
            nodes &= self._satisfying(requirement)
        return nodes

    def _satisfying(self, requirement: LabelRequirement) -> NodeSet:
        labels = self.labelled(requirement.key)
        # A label such as the host name has a different value on each node. These two operators look up only
        # the values that they name.
        if requirement.operator in ("In", "NotIn"):
            nodes = _union(labels.get(value, 0) for value in requirement.values)
            return nodes if requirement.operator == "In" else self.everywhere & ~nodes
        nodes = _union(
            having
            for value, having in labels.items()
            if matches_requirement({requirement.key: value}, requirement)
        )
        if matches_requirement({}, requirement):
            nodes |= self.everywhere & ~_union(labels.values())
        return nodes

    def labelled(self, key: str) -> Mapping[str, NodeSet]:
        """Return the nodes with the label, by its value."""
        sets = self._labels.get(key)
        if sets is None:
            positions: dict[str, list[int]] = {}
            for position, node in enumerate(self._nodes):
                value = label_of(node, key)
                if value is not None:
                    positions.setdefault(value, []).append(position)
            sets = self._labels[key] = {value: self._those(at) for value, at in positions.items()}
        return sets

    def _grouped(self, values: Iterable[_Value]) -> dict[_Value, NodeSet]:
        positions: dict[_Value, list[int]] = {}
        for position, value in enumerate(values):
            positions.setdefault(value, []).append(position)
        return {value: self._those(at) for value, at in positions.items()}

    def _those(self, positions: Iterable[int]) -> NodeSet:
        return node_set(positions, len(self._nodes))


def _union(sets: Iterable[NodeSet]) -> NodeSet:
    union = 0
    for nodes in sets:
        union |= nodes
    return union


def label_of(node: Node, key: str) -> str | None:
    """Return the value of the node's label, or None. The default for a label of NAME_LABELS is the node's name."""
    return node.labels.get(key, node.name if key in NAME_LABELS else None)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether one toleration accepts one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def node_types_for(project: Project, workload: Workload) -> tuple[str, ...]:
    """Return the node types that the project allows for this kind of workload; an empty result allows all."""
    return project.interactive_node_types if workload.interactive else project.train_node_types
