"""Placements for all pods of a chunk together, and the topology domains in which a chunk can run."""

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.gangs import chunk_gpu_milli, leaves
from orchestrator.planner.model import Pod, PodState, SubGroup, TopologyRule, Workload
from orchestrator.planner.node_sets import label_of
from orchestrator.planner.placement.placer import Placer
from orchestrator.planner.placements import Placed

Domain = tuple[int, ...]


def domains(ledger: Ledger, levels: Sequence[str], scope: Collection[int] | None) -> list[Domain]:
    """Return the nodes in groups with the same values for all `levels`, without nodes that lack one of these labels."""
    groups = ledger.grouped_by(tuple(levels))
    groups_of_nodes = [(values, groups[values]) for values in sorted(groups) if all(values)]
    if scope is None:
        return [positions for _, positions in groups_of_nodes]
    within = [
        tuple([position for position in positions if position in scope]) for _, positions in groups_of_nodes
    ]
    return [positions for positions in within if positions]


def domains_to_try(
    ledger: Ledger,
    rule: TopologyRule,
    chunk: Sequence[Pod],
    scope: Collection[int] | None,
    occupied: Collection[int],
) -> list[Collection[int] | None]:
    """Return sets of nodes for the pods, best first. `occupied` are the nodes on which the workload already runs."""
    tries: list[Collection[int] | None] = []
    for level in _levels_to_try(rule):
        below = rule.levels[: rule.levels.index(level) + 1]
        possible = domains(ledger, below, scope)
        at_home = [domain for domain in possible if set(occupied) <= set(domain)] if occupied else possible
        requested = chunk_gpu_milli(chunk)
        free_of = _free_by_level(ledger, below, scope)
        candidates = [(domain, free_of(domain)) for domain in at_home]
        tries += [
            domain
            for domain, free_milli in sorted(candidates, key=itemgetter(1))
            if free_milli[-1] >= requested
        ]
    if rule.required is None:
        tries.append(scope)
    return tries


def candidate_domains(ledger: Ledger, rule: TopologyRule, workload: Workload) -> list[Domain]:
    """Return the domains in which the workload's pods could run together on empty nodes, closest levels first."""
    occupied = {
        ledger.by_name[pod.node].position
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED and pod.node in ledger.by_name
    }
    candidates: list[Domain] = []
    for level in _levels_to_try(rule):
        possible = domains(ledger, rule.levels[: rule.levels.index(level) + 1], None)
        candidates += [domain for domain in possible if not occupied or occupied <= set(domain)]
    return candidates


def _levels_to_try(rule: TopologyRule) -> list[str]:
    """Return the levels from the preferred level to wider levels, at most up to the required level."""
    known = [level for level in (rule.preferred, rule.required) if level in rule.levels]
    if not known:
        return []
    deepest = max(rule.levels.index(level) for level in known)
    widest = rule.levels.index(rule.required) if rule.required in rule.levels else 0
    return list(reversed(rule.levels[widest : deepest + 1]))


def _free_by_level(
    ledger: Ledger, levels: Sequence[str], scope: Collection[int] | None
) -> Callable[[Domain], list[int]]:
    """Return a function that maps a domain to the free GPUs around it, in thousandths: one number a level, widest
    first.

    GPUs of terminating pods count as free.
    """
    free_milli: dict[tuple[str, ...], int] = {}
    nodes = ledger.nodes
    for values, positions in ledger.grouped_by(tuple(levels)).items():
        inside = positions if scope is None else [position for position in positions if position in scope]
        free = sum([nodes[position].later_milli for position in inside if nodes[position].node.schedulable])
        for depth in range(len(levels)):
            around = values[: depth + 1]
            free_milli[around] = free_milli.get(around, 0) + free

    def free_of(domain: Domain) -> list[int]:
        labels = nodes[domain[0]].node.labels
        values = tuple([labels.get(level, "") for level in levels])
        return [free_milli[values[: depth + 1]] for depth in range(len(levels))]

    return free_of


Scope = Collection[int] | None
"""Positions of the nodes to search; None: all nodes."""

_MAX_SEARCHED = 64
_MAX_TRIES = 200


class ChunkPlacer:
    """Places chunks on one ledger."""

    def __init__(self, ledger: Ledger, placer: Placer) -> None:
        self._ledger = ledger
        self._placer = placer

    def place(self, workload: Workload, chunk: Sequence[Pod], *, only_now: bool = False) -> Placed | None:
        """Place every pod of the chunk on the ledger. Return None, with no change, if one does not fit.

        `only_now` excludes GPUs of terminating pods.
        """
        if workload.topology is None and workload.groups is None:
            return self._place_pods(workload, chunk, None, only_now=only_now)
        return self._place_group(workload, workload.groups, workload.topology, chunk, None, only_now=only_now)

    def _place_group(
        self,
        workload: Workload,
        group: SubGroup | None,
        rule: TopologyRule | None,
        chunk: Sequence[Pod],
        scope: Scope,
        *,
        only_now: bool,
    ) -> Placed | None:
        names = None if group is None else {leaf.name for leaf in leaves(group)}
        occupied = [
            self._ledger.by_name[pod.node].position
            for pod in workload.pods
            if pod.state is PodState.ALLOCATED
            and pod.node in self._ledger.by_name
            and (names is None or pod.sub_group in names)
        ]
        tries = [scope] if rule is None else domains_to_try(self._ledger, rule, chunk, scope, occupied)
        for domain in tries:
            placed = self._place_in(workload, group, chunk, domain, only_now=only_now)
            if placed is not None:
                return placed
        return None

    def _place_in(
        self,
        workload: Workload,
        group: SubGroup | None,
        chunk: Sequence[Pod],
        scope: Scope,
        *,
        only_now: bool,
    ) -> Placed | None:
        if group is None or not group.children:
            return self._place_pods(workload, chunk, scope, only_now=only_now)
        checkpoint = self._ledger.checkpoint()
        placed: Placed = []
        for child in group.children:
            names = {leaf.name for leaf in leaves(child)}
            pods = [pod for pod in chunk if pod.sub_group in names]
            part = (
                self._place_group(workload, child, child.topology, pods, scope, only_now=only_now)
                if pods
                else []
            )
            if part is None:
                self._ledger.rollback(checkpoint)
                return None
            placed += part
        return placed

    def _place_pods(
        self, workload: Workload, chunk: Sequence[Pod], scope: Scope, *, only_now: bool
    ) -> Placed | None:
        neighbours = self._ledger.neighbours
        if len(chunk) > 1 and neighbours is not None and any(map(neighbours.concerns, chunk)):
            return self._place_beside_each_other(workload, chunk, scope, only_now=only_now)
        checkpoint = self._ledger.checkpoint()
        placed: Placed = []
        for pod in largest_first(chunk):
            placement = self._placer.find(workload, pod, scope, only_now=only_now)
            if placement is None:
                self._ledger.rollback(checkpoint)
                return None
            self._ledger.place(workload, pod, placement)
            placed.append((pod, placement))
        return placed

    def _place_beside_each_other(
        self, workload: Workload, chunk: Sequence[Pod], scope: Scope, *, only_now: bool
    ) -> Placed | None:
        """Place pods whose constraints can refer to each other: pods without affinity first, then the others."""
        pods = sorted(largest_first(chunk), key=lambda pod: bool(pod.traits.affinity))
        placed = self._place_in_passes(workload, pods, scope, only_now=only_now)
        if placed is None and len(pods) <= _MAX_SEARCHED:
            return self._search(workload, pods, scope, only_now=only_now)
        return placed

    def _place_in_passes(
        self, workload: Workload, pods: Sequence[Pod], scope: Scope, *, only_now: bool
    ) -> Placed | None:
        """Place each pod on its best node. A pod that fits on no node is tried again after the others."""
        checkpoint = self._ledger.checkpoint()
        placed: Placed = []
        while pods:
            before, without = len(placed), list[Pod]()
            for pod in pods:
                placement = None
                if not (without and len(placed) == before and _are_equal(pod, without[-1])):
                    placement = self._placer.find(workload, pod, scope, only_now=only_now)
                if placement is None:
                    without.append(pod)
                    continue
                self._ledger.place(workload, pod, placement)
                placed.append((pod, placement))
            if len(placed) == before:
                self._ledger.rollback(checkpoint)
                return None
            pods = without
        return placed

    def _search(
        self, workload: Workload, pods: Sequence[Pod], scope: Scope, *, only_now: bool
    ) -> Placed | None:
        """Place the pods in up to _MAX_TRIES searches for a node.

        With the best node for the first pod, no node may remain for the last pod. Example: the node is in the smaller
        zone, and all pods have affinity to each other. Then the first pod is placed in another domain.
        """
        tries = iter(range(_MAX_TRIES))

        def place(waiting: Sequence[Pod]) -> Placed | None:
            for pod in _different(waiting):
                others = [other for other in waiting if other is not pod]
                closed: set[int] = set()
                while next(tries, None) is not None:
                    within = scope if not closed else self._without(scope, closed)
                    placement = self._placer.find(workload, pod, within, only_now=only_now)
                    if placement is None:
                        break
                    checkpoint = self._ledger.checkpoint()
                    self._ledger.place(workload, pod, placement)
                    rest = place(others) if others else []
                    if rest is not None:
                        return [(pod, placement), *rest]
                    self._ledger.rollback(checkpoint)
                    closed.update(self._alike(pod, placement.node))
                if closed:
                    return None  # another order of the pods would try the same nodes
            return None

        return place(pods)

    def _without(self, scope: Scope, closed: Collection[int]) -> Scope:
        positions = range(len(self._ledger.nodes)) if scope is None else scope
        return [position for position in positions if position not in closed]

    def _alike(self, pod: Pod, name: str) -> Collection[int]:
        """Return the nodes that share the node's domains for all topology keys of the pod's constraints."""
        traits, nodes = pod.traits, self._ledger.nodes
        keys = dict.fromkeys(term.topology_key for term in (*traits.affinity, *traits.anti_affinity))
        keys |= dict.fromkeys(spread.topology_key for spread in traits.spread)
        position = self._ledger.by_name[name].position
        values = [label_of(nodes[position].node, key) for key in keys]
        if not keys:
            return (position,)
        return [
            account.position for account in nodes if [label_of(account.node, key) for key in keys] == values
        ]


def _are_equal(one: Pod, other: Pod) -> bool:
    """Return whether the two pods can use the same nodes: equal request, constraints and traits."""
    return (
        one.request == other.request and one.constraints is other.constraints and one.traits == other.traits
    )


def _different(pods: Sequence[Pod]) -> list[Pod]:
    """Return the first pod of each combination of request, constraints and traits."""
    return list({(pod.request, pod.constraints, pod.traits): pod for pod in reversed(pods)}.values())[::-1]


def largest_first(chunk: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods sorted by GPUs, largest first: in this order they fit best."""
    return chunk if len(chunk) == 1 else sorted(chunk, key=lambda pod: -pod.request.gpu_milli)
