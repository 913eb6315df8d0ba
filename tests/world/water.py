"""Fair shares computed independently with fractions: quotas first, then the rest by strict priority and by weight.

A share is rounded to whole devices once, at the end: remaining devices go to the largest remainders, then to the older
project. A department requests the amount that its projects may hold under the limits below it. Requests that no node
can satisfy do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI, PodState
from tests.world.facts import (
    NOTHING,
    add,
    admits,
    allocated,
    device_count,
    next_chunk,
    part_milli,
    pending,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.planner.model import Amounts, Node, Pod, Snapshot, Workload
    from tests.world.facts import Tree


@dataclass(frozen=True)
class Side:
    """One project in a division, in `gpu_milli`."""

    name: str
    quota: int | None
    wanted: int
    weight: int
    priority: int
    created_at_us: int


def fair_shares(snapshot: Snapshot, tree: Tree) -> dict[str, int] | None:
    """Return each project's share in `gpu_milli`; None if the sets of nodes for different requests overlap only in
    part.
    """
    demand: dict[str, int] = {}
    for name in tree.projects:
        own = _demand(snapshot, tree, name)
        if own is None:
            return None
        demand[name] = own
    for name in sorted(tree.projects, key=lambda project: -len(tree.lineage[project])):
        for parent in tree.lineage[name][1:2]:
            limit = tree.limit(name)[0]
            demand[parent] += demand[name] if limit is None else min(limit, demand[name])
    shares: dict[str, int] = {}
    _share(tree, demand, None, capacity(snapshot.nodes)[0], shares)
    return shares


def capacity(nodes: Iterable[Node]) -> Amounts:
    """Return the capacity of the schedulable nodes, without the use of other schedulers."""
    amounts = NOTHING
    for node in nodes:
        if node.schedulable:
            free = (
                max(0, node.usable_gpus - node.foreign.gpu_count) * DEVICE_MILLI,
                max(0, node.cpu_milli - node.foreign.cpu_milli),
                max(0, node.memory_bytes - node.foreign.memory_bytes),
            )
            amounts = add(amounts, free)
    return amounts


def _share(
    tree: Tree, demand: Mapping[str, int], parent: str | None, amount: int, shares: dict[str, int]
) -> None:
    sides = []
    for name in tree.children.get(parent, ()):
        project, limit = tree.projects[name], tree.limit(name)[0]
        wanted = demand[name] if limit is None else min(limit, demand[name])
        sides.append(
            Side(
                name,
                project.quota_gpu_milli,
                wanted,
                max(0, project.over_quota_weight),
                project.priority,
                project.created_at_us,
            )
        )
    divided = divide(amount, sides)
    shares |= divided
    for name, share in divided.items():
        if name in tree.children:
            _share(tree, demand, name, share, shares)


def divide(amount: int, sides: list[Side]) -> dict[str, int]:
    """Return each side's share of the amount."""
    shares = {side.name: min(amount if side.quota is None else side.quota, side.wanted) for side in sides}
    surplus = max(0, amount - sum(shares.values()))
    for priority in sorted({side.priority for side in sides}, reverse=True):
        hungry = {
            side: Fraction(side.wanted - shares[side.name])
            for side in sides
            if side.priority == priority and side.weight > 0 and side.wanted > shares[side.name]
        }
        for side, part in _level(Fraction(surplus), hungry).items():
            shares[side.name] += part
            surplus -= part
    return shares


def _level(amount: Fraction, hungry: Mapping[Side, Fraction]) -> dict[Side, int]:
    parts: dict[Side, Fraction] = {}
    unsatisfied = dict(hungry)
    while unsatisfied:
        weights = sum(side.weight for side in unsatisfied)
        satisfied = [
            side for side, missing in unsatisfied.items() if missing <= amount * side.weight / weights
        ]
        if not satisfied:
            break
        for side in satisfied:
            parts[side] = unsatisfied.pop(side)
            amount -= parts[side]
    whole = {side: int(part) for side, part in parts.items()}
    weights = sum(side.weight for side in unsatisfied)
    remainders: list[tuple[Fraction, int, str, Side]] = []
    rest = amount
    for side in unsatisfied:
        exact = amount * side.weight / weights
        whole[side] = int(exact // DEVICE_MILLI) * DEVICE_MILLI
        rest -= whole[side]
        remainders.append((whole[side] - exact, side.created_at_us, side.name, side))
    for _, _, _, side in sorted(remainders, key=lambda entry: entry[:3]):
        extra = int(min(Fraction(DEVICE_MILLI), rest, unsatisfied[side] - whole[side]))
        whole[side] += extra
        rest -= extra
    return whole


def _demand(snapshot: Snapshot, tree: Tree, project: str) -> int | None:
    """Return the demand of the project's own workloads that empty nodes could satisfy."""
    nodes = {node.name: node for node in snapshot.nodes}
    by_nodes: dict[frozenset[str], int] = {}
    held = outside = 0
    for workload in snapshot.workloads:
        if workload.project != project:
            continue
        # a terminating pod counts until a pending pod replaces it
        leaving = sorted(
            (pod for pod in workload.pods if pod.state is PodState.RELEASING and not pod.stuck),
            key=lambda pod: (not pod.replaced, pod.id),
        )
        replaced = sum(pod.replaced for pod in leaving)
        for pod in (*allocated(workload), *leaving[max(replaced, len(pending(workload))) :]):
            held += pod.request.gpu_milli
            # the nodes on which it could run, as for pending pods
            where = frozenset(
                node.name
                for node in snapshot.nodes
                if admits(node, pod, workload, tree.projects[project]) and could_hold(node, pod)
            )
            if pod.node in nodes and pod.node not in where:
                outside += pod.request.gpu_milli
                continue
            by_nodes[where] = by_nodes.get(where, 0) + pod.request.gpu_milli
        for chunk in _chunks(workload):
            served = _served(snapshot, tree, workload, chunk)
            if served is None:
                return None
            for where, amount in served.items():
                by_nodes[where] = by_nodes.get(where, 0) + amount
    bounded = _bounded(snapshot, by_nodes)
    return None if bounded is None else max(held, outside + bounded)


def _chunks(workload: Workload) -> list[list[Pod]]:
    """Return the pending pods in chunks: the minimum of a gang together, the others one by one."""
    if not pending(workload):
        return []
    core = next_chunk(workload)
    if len(core) <= 1:
        return [[pod] for pod in pending(workload)]
    ids = {pod.id for pod in core}
    return [core, *([pod] for pod in pending(workload) if pod.id not in ids)]


def _served(
    snapshot: Snapshot, tree: Tree, workload: Workload, chunk: list[Pod]
) -> dict[frozenset[str], int] | None:
    groups: dict[frozenset[str], list[Pod]] = {}
    for pod in chunk:
        where = frozenset(
            node.name
            for node in snapshot.nodes
            if admits(node, pod, workload, tree.projects[workload.project]) and could_hold(node, pod)
        )
        if not where:
            return {}
        groups.setdefault(where, []).append(pod)
    if len(chunk) > 1:
        if len(groups) > 1:
            return None
        ((where, pods),) = groups.items()
        there = capacity(node for node in snapshot.nodes if node.name in where)
        if any(amount > most for amount, most in zip(total(pods), there, strict=True)):
            return {}
        for name in {name for pod in pods for name, _ in pod.request.scalars}:
            requested = sum(dict(pod.request.scalars).get(name, 0) for pod in pods)
            if requested > sum(node.scalars.get(name, 0) for node in snapshot.nodes if node.schedulable):
                return {}
    return {where: total(pods)[0] for where, pods in groups.items()}


def could_hold(node: Node, pod: Pod) -> bool:
    """Return whether the pod would fit on the node without muster's other pods."""
    request = pod.request
    devices = max(0, node.usable_gpus - node.foreign.gpu_count)
    return (
        device_count(request) <= devices
        and (not device_count(request) or part_milli(node, request) <= DEVICE_MILLI)
        and request.cpu_milli <= node.cpu_milli - node.foreign.cpu_milli
        and request.memory_bytes <= node.memory_bytes - node.foreign.memory_bytes
        and node.pod_slots > node.foreign_pods
        and all(
            node.scalars.get(name, 0) - dict(node.foreign.scalars).get(name, 0) >= amount
            for name, amount in request.scalars
        )
    )


def _bounded(snapshot: Snapshot, by_nodes: Mapping[frozenset[str], int]) -> int | None:
    """Return the maximum demand that the nodes can satisfy; None unless the sets of nodes are nested or disjoint."""
    sets = sorted((where for where in by_nodes if where), key=lambda where: (len(where), sorted(where)))
    blocks: list[tuple[frozenset[str], int]] = []
    for where in sets:
        inside = [block for block in blocks if block[0] <= where]
        others = [block for block in blocks if not block[0] <= where]
        if any(block[0] & where for block in others):
            return None
        most = capacity(node for node in snapshot.nodes if node.name in where)[0]
        amount = min(most, by_nodes[where] + sum(block[1] for block in inside))
        blocks = [*others, (where, amount)]
    return sum(amount for _, amount in blocks)
