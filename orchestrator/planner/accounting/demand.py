"""The demand of each project. Requests that even the empty cluster could not serve do not count.

Running pods count with their request, and terminating pods until their replacement pod exists. Otherwise shares would
fall until the replacement pod is created and then rise again, and GPUs would be reclaimed back and forth.

Pending pods count with these exceptions:

- A chunk does not count if it cannot start even on empty nodes. Either one of its pods is larger than every node
  that admits it, or the chunk is larger than all these nodes together.
- The demand of pods that can run only on some nodes is capped at the total capacity of these nodes. The pods that run
  there already are included.

A running pod counts for the same set of nodes as when it was pending. Otherwise a share would rise when a pod starts,
and fall when the pod is reclaimed.

Demand that cannot be served would raise a project's fair share at the expense of other projects. If two sets of nodes
overlap and neither contains the other, they are bounded by the capacity of their union. For all other sets, the bound
is exact.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Constraints, Pod, PodState, Request, Workload
from orchestrator.planner.node_sets import NodeSet, NodeSets, node_types_for

MAX_NESTED = 64
"""Maximum number of node sets of a project that are compared. If there are more, each set has its own bound, and the
union of all sets has one.
"""

Block = tuple[NodeSet, list[int]]
"""A set of nodes, and the amounts that only these nodes can serve."""

Part = tuple[Request, Constraints, int]
"""Request, constraints and number of equal pods of a chunk."""

Shape = tuple[tuple[str, ...], tuple[Part, ...]]
"""The request of a chunk: the node types that its project allows, and its parts."""

Served = tuple[tuple[NodeSet, NodeSet, Amounts], ...]
"""For each part: the nodes that admit its pods, the nodes that could run one of them, and the total request."""


@dataclass(slots=True)
class _Pending:
    """Equal chunks of one project."""

    served: Served
    chunks: int = 0


@dataclass(slots=True)
class _Running:
    """Pods of one project with the same request and constraints, and the nodes that could run one of them."""

    types: tuple[str, ...]
    constraints: Constraints
    request: Request
    nodes: NodeSet
    pods: int = 0
    amounts: list[int] = field(default_factory=lambda: [0, 0, 0])


@dataclass(slots=True)
class _ProjectDemand:
    """The running and pending amounts of one project.

    `last` is the entry of `running` that was used last. `outside` has the amounts of pods on nodes that no longer admit
    them (cordoned, other labels); no bound applies to these. `total` is the cached result; None after a change.
    """

    pending: dict[Shape, _Pending] = field(default_factory=dict)
    running: dict[tuple[tuple[str, ...], Constraints, Request], _Running] = field(default_factory=dict)
    last: _Running | None = None
    held: list[int] = field(default_factory=lambda: [0, 0, 0])
    outside: list[int] = field(default_factory=lambda: [0, 0, 0])
    total: Amounts | None = None


class Demand:
    """The demand of every project of a tree on these nodes, updated workload by workload."""

    def __init__(self, tree: ProjectTree, nodes: NodeSets) -> None:
        self._tree = tree
        self._nodes = nodes
        self._projects = {name: _ProjectDemand() for name in tree.projects}

    def count(self, workload: Workload, chunks: Sequence[Sequence[Pod]], sign: int) -> None:
        """Add (`sign` 1) or subtract (-1) a workload. `chunks` are the chunks of its pending pods.

        Pending pods without a chunk, because their gang is not complete, count one by one. A workload of an unknown
        project does not count.
        """
        mine = self._projects.get(workload.project)
        if mine is None:
            return
        mine.total = None
        types = node_types_for(self._tree.projects[workload.project], workload)
        pods = workload.pods
        if len(pods) == 1 and pods[0].state is PodState.ALLOCATED:  # the usual case, without the search below
            self._count_running(mine, types, pods[0], sign)
            return
        waiting = 0
        terminating: list[Pod] = []
        for pod in pods:
            if pod.state is PodState.ALLOCATED:
                self._count_running(mine, types, pod, sign)
            elif pod.state is PodState.PENDING:
                waiting += 1
            elif not pod.stuck:
                terminating.append(pod)
        replaced = sum(pod.replaced for pod in terminating)
        terminating.sort(key=lambda pod: (not pod.replaced, pod.id))
        for pod in terminating[max(replaced, waiting) :]:
            self._count_running(mine, types, pod, sign)
        for chunk in chunks:
            waiting -= len(chunk)
            self._count_pending(mine, (types, _parts(chunk)), sign)
        if waiting:
            chosen = {pod.id for chunk in chunks for pod in chunk}
            for pod in workload.pods:
                if pod.state is PodState.PENDING and pod.id not in chosen:
                    self._count_pending(mine, (types, _parts((pod,))), sign)

    def by_project(self) -> dict[str, Amounts]:
        """Return the demand of each project; for a department, the demand of its own workloads only."""
        return {name: self._total(mine) for name, mine in self._projects.items()}

    def by_model(self, held: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
        """Return the demand of each project for each GPU model that has a quota or limit.

        It is the running amount, plus the pending requests that fit only GPUs of this model.
        """
        tree = self._tree
        demand = {
            (name, model): held.get((name, model), 0)
            for name in tree.projects
            if name not in tree.children
            for model in tree.models
        }
        for name, mine in self._projects.items() if tree.models else ():
            groups: dict[str, dict[NodeSet, list[int]]] = {}
            for pending in mine.pending.values():
                for admitted, nodes, amounts in pending.served:
                    models = self._nodes.models_in(admitted)
                    if amounts[0] and len(models) == 1 and (name, models[0]) in demand:
                        _add(groups.setdefault(models[0], {}), nodes, amounts, pending.chunks)
            for model, waiting in groups.items():
                bounded = bounded_demand(waiting, self._nodes.capacity)[0]
                present = demand[name, model]
                most = self._nodes.capacity(self._nodes.of_model(model))[0]
                demand[name, model] = max(present, min(present + bounded, most))
        return demand

    def _count_running(self, mine: _ProjectDemand, types: tuple[str, ...], pod: Pod, sign: int) -> None:
        request = pod.request
        gpu, cpu, memory = request.amounts
        if sign < 0:
            gpu, cpu, memory = -gpu, -cpu, -memory
        held = mine.held
        held[0] += gpu
        held[1] += cpu
        held[2] += memory
        constraints, last = pod.constraints, mine.last
        if (
            last is not None
            and last.constraints is constraints
            and last.request == request
            and last.types == types
        ):
            running = (
                # Nearly all pods of a project are equal, so this comparison saves most of the time for
                # hashing.
                last
            )
        else:
            key = (types, constraints, request)
            known = mine.running.get(key)
            if known is None:
                nodes = self._nodes.admitting(constraints, types) & self._nodes.holding(request)
                known = mine.running[key] = _Running(types, constraints, request, nodes)
            running = mine.last = known
        if not self._nodes.contains(running.nodes, pod.node):
            amounts = mine.outside
        else:
            amounts = running.amounts
            running.pods += sign
        amounts[0] += gpu
        amounts[1] += cpu
        amounts[2] += memory
        if not running.pods:
            del mine.running[types, constraints, request]
            mine.last = None

    def _count_pending(self, mine: _ProjectDemand, shape: Shape, sign: int) -> None:
        pending = mine.pending.get(shape)
        if pending is None:
            pending = mine.pending[shape] = _Pending(self._served(shape))
        pending.chunks += sign
        if not pending.chunks:
            del mine.pending[shape]

    def _served(self, shape: Shape) -> Served:
        """Return the parts of the chunk with their nodes; empty if the chunk could not start on empty nodes."""
        types, parts = shape
        served: list[tuple[NodeSet, NodeSet, Amounts]] = []
        on_devices: dict[NodeSet, list[int]] = {}
        scalars: dict[str, int] = {}
        for request, constraints, count in parts:
            for scalar, amount in request.scalars:
                scalars[scalar] = scalars.get(scalar, 0) + amount * count
            admitted = self._nodes.admitting(constraints, types)
            nodes = admitted & self._nodes.holding(request)
            if not nodes:
                return ()
            gpu, cpu, memory = request.amounts
            served.append((admitted, nodes, (gpu * count, cpu * count, memory * count)))
            # The quota counts a memory request as a portion of the smallest GPU, which can be more than one GPU.
            # The pods never need more than their number of devices, so the smaller amount is used.
            most = max(request.gpu_count, request.shared_devices if request.is_shared else 0) * DEVICE_MILLI
            _add(on_devices, nodes, (min(gpu, most), cpu, memory), count)
        if any(self._nodes.total_of_scalar(scalar) < amount for scalar, amount in scalars.items()):
            return ()
        total = _merged(on_devices.items())[1]
        return tuple(served) if bounded_demand(on_devices, self._nodes.capacity) == tuple(total) else ()

    def _total(self, mine: _ProjectDemand) -> Amounts:
        if mine.total is None:
            groups: dict[NodeSet, list[int]] = {}
            for running in mine.running.values():
                _add(groups, running.nodes, running.amounts)
            for pending in mine.pending.values():
                for _, nodes, amounts in pending.served:
                    _add(groups, nodes, amounts, pending.chunks)
            bounded, held, outside = bounded_demand(groups, self._nodes.capacity), mine.held, mine.outside
            mine.total = (
                max(held[0], outside[0] + bounded[0]),
                max(held[1], outside[1] + bounded[1]),
                max(held[2], outside[2] + bounded[2]),
            )
        return mine.total


def bounded_demand(
    groups: Mapping[NodeSet, Sequence[int]], capacity: Callable[[NodeSet], Amounts]
) -> Amounts:
    """Return the total amount that the nodes could serve if they were empty.

    Each group has an amount and the set of nodes that can serve this amount.
    """
    if len(groups) > MAX_NESTED:
        blocks = [(nodes, _bounded(amounts, capacity(nodes))) for nodes, amounts in groups.items()]
        blocks = [_merged(blocks)]
    else:
        blocks = _connected(_nested(groups, capacity))
    gpu = cpu = memory = 0
    for nodes, amounts in blocks:
        most = capacity(nodes)
        gpu += min(amounts[0], most[0])
        cpu += min(amounts[1], most[1])
        memory += min(amounts[2], most[2])
    return gpu, cpu, memory


def _nested(groups: Mapping[NodeSet, Sequence[int]], capacity: Callable[[NodeSet], Amounts]) -> list[Block]:
    """Return the outermost sets, which no other set contains.

    The amount of each set includes the amounts of the sets inside it, and is capped at its capacity.
    """
    blocks: list[Block] = []
    # Smallest set first: the amount that it can serve counts in each larger set that contains it.
    for nodes in sorted(groups, key=lambda candidate: (candidate.bit_count(), candidate)):
        inner = [block for block in blocks if block[0] & nodes == block[0]]
        blocks = [block for block in blocks if block[0] & nodes != block[0]]
        _, amounts = _merged([*inner, (nodes, groups[nodes])])
        blocks.append((nodes, _bounded(amounts, capacity(nodes))))
    return blocks


def _connected(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks, with overlapping blocks joined to one."""
    merged: list[Block] = []
    for block in blocks:
        touching = [other for other in merged if other[0] & block[0]]
        merged = [other for other in merged if not other[0] & block[0]]
        merged.append(_merged([*touching, block]))
    return merged


def _merged(blocks: Iterable[tuple[NodeSet, Sequence[int]]]) -> Block:
    union, total = 0, [0, 0, 0]
    for nodes, amounts in blocks:
        union |= nodes
        for resource, amount in enumerate(amounts):
            total[resource] += amount
    return union, total


def _bounded(amounts: Sequence[int], most: Amounts) -> list[int]:
    return [min(amount, bound) for amount, bound in zip(amounts, most, strict=True)]


def _add(groups: dict[NodeSet, list[int]], nodes: NodeSet, amounts: Sequence[int], times: int = 1) -> None:
    total = groups.setdefault(nodes, [0, 0, 0])
    for resource, amount in enumerate(amounts):
        total[resource] += amount * times


def _parts(chunk: Sequence[Pod]) -> tuple[Part, ...]:
    if len(chunk) == 1:
        return ((chunk[0].request, chunk[0].constraints, 1),)
    counts: dict[tuple[Request, Constraints], int] = {}
    # Most pods of a gang are equal: comparing neighbours is faster than hashing all of them.
    for (request, constraints), alike in groupby(chunk, key=attrgetter("request", "constraints")):
        key = (request, constraints)
        counts[key] = counts.get(key, 0) + sum(1 for _ in alike)
    return tuple((request, constraints, count) for (request, constraints), count in counts.items())
