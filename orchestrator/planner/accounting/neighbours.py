"""Counts pods by node for the constraints between pods.

A ledger has these counts only if a pod of the snapshot has such a constraint. The semantics are those of the plugins
InterPodAffinity, PodTopologySpread and NodePorts of kube-scheduler. `later` is the time after all terminating pods have
ended. Until then, a terminating pod counts for anti-affinity and host ports, but not for affinity and spread.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from orchestrator.planner.model import Node, Pod, Toleration
from orchestrator.planner.node_sets import MAX_CACHED, NodeSet, NodeSets, label_of, positions_in
from orchestrator.planner.traits import (
    HostPort,
    PodSelector,
    PodTerm,
    PodTraits,
    Preferences,
    SpreadConstraint,
)

_MAX_SPREAD_SCORE = 100
_Selection = tuple[PodSelector, ...]
"""A set of selectors; it selects the pods that each of them selects."""


class Hindrance(NamedTuple):
    """A constraint that excludes nodes for a pod: its name in messages, and its topology key ("" for a host port)."""

    constraint: str
    topology_key: str
    closed: NodeSet


class _Counts:
    """The number of pods with one property on each node, by position, and the number of these that terminate."""

    __slots__ = ("held", "releasing")

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.releasing: dict[int, int] = {}

    def positions(self, *, later: bool) -> Iterator[int]:
        """Yield the positions of the nodes with such a pod."""
        if not (later and self.releasing):
            return (position for position, count in self.held.items() if count > 0)
        return (position for position, count in self.staying() if count > 0)

    def staying(self) -> Iterator[tuple[int, int]]:
        """Yield the positions with the numbers of such pods that do not terminate."""
        releasing = self.releasing
        return ((position, count - releasing.get(position, 0)) for position, count in self.held.items())


class _Kind:
    """All pods with the same traits: the counts that include them, and the anti-affinity terms of other pods that
    select them.
    """

    __slots__ = ("counts", "labels", "repelled_by", "traits")

    def __init__(self, traits: PodTraits) -> None:
        self.traits = traits
        self.labels = dict(traits.labels)
        self.counts: list[_Counts] = []
        self.repelled_by: list[tuple[PodTerm, _Counts]] = []

    def is_selected(self, selection: _Selection) -> bool:
        """Return whether every one of the selectors selects these pods."""
        namespace, labels = self.traits.namespace, self.labels
        return all(selector.selects(namespace, labels) for selector in selection)


class _Resident:
    """The counts of a pod on a node. During a trial, a pod can be counted twice on a node."""

    __slots__ = ("held", "kind", "releasing")

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.held = self.releasing = 0


class Neighbours:
    """The pods on the nodes, counted for the constraints that select them. Positions are indices of the ledger's nodes.

    `waiting` yields the nominated pods of the decision with their positions.
    """

    def __init__(self, nodes: Sequence[Node], node_sets: NodeSets) -> None:
        self.waiting: Callable[[], Iterable[tuple[Pod, int]]] = tuple
        self._nodes = nodes
        self._node_sets = node_sets
        self._residents: dict[int, dict[Hashable, _Resident]] = {}
        self._kinds: dict[PodTraits, _Kind] = {}
        self._by_identity: dict[int, tuple[PodTraits, _Kind]] = {}
        self._selected: dict[_Selection, _Counts] = {}
        self._repelling: dict[PodTerm, _Counts] = {}
        self._ports: dict[HostPort, _Counts] = {}
        self._open: dict[tuple[int, tuple[Toleration, ...], bool], NodeSet] = {}
        self.version = 0
        for position, node in enumerate(nodes):
            for index, traits in enumerate(node.foreign_traits):
                self._change((position, index), traits, position, 1)

    @property
    def is_worn(self) -> bool:
        """Return whether the cache exceeds MAX_CACHED entries.

        Most of them are then for ended pods, and the caller builds a new object.
        """
        return len(self._by_identity) + len(self._selected) > MAX_CACHED

    def occupy(self, pod: Pod, position: int, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod on the node."""
        self._change(pod.id, pod.traits, position, sign)

    def release(self, pod: Pod, position: int, sign: int) -> None:
        """Mark (`sign` 1) or unmark (-1) the pod as terminating."""
        self.version += 1
        self._open.clear()
        resident = self._resident(pod.id, pod.traits, position)
        resident.releasing += sign
        for counts in resident.kind.counts:
            _add(counts.releasing, position, sign)
        self._forget(pod.id, resident, position)

    def concerns(self, pod: Pod) -> bool:
        """Return whether a constraint between pods, its own or one of another pod, restricts the nodes of the pod."""
        return pod.traits.is_constrained or bool(self._kind(pod.traits).repelled_by)

    def key(self, pod: Pod) -> Hashable:
        """Return a key of the constraints: otherwise equal pods with the same key may use the same nodes."""
        return id(self._kind(pod.traits)) if self.concerns(pod) else None

    def admitting(self, pod: Pod, *, later: bool) -> NodeSet:
        """Return the nodes on which the pod would break no constraint between pods.

        Unless `later`, affinity and spread must be met both with and without the nominated pods.
        """
        if not self.concerns(pod):
            return self._node_sets.everywhere
        kind = self._kind(pod.traits)
        waiting = [] if later else self._waiting()
        key = (id(kind), pod.constraints.tolerations, later)
        known = None if waiting else self._open.get(key)
        if known is not None:
            return known
        nodes = ~self._closed(kind, later=later) & self._required(pod, kind)
        if waiting:
            return nodes & self._required_without(waiting, pod, kind)
        self._open[key] = nodes
        return nodes

    def _required_without(self, waiting: Sequence[tuple[Pod, int]], pod: Pod, kind: _Kind) -> NodeSet:
        """Return the nodes on which affinity and spread are met before the waiting pods start."""
        for other, position in waiting:
            self._count(self._kind(other.traits), position, -1)
        nodes = self._required(pod, kind)
        for other, position in waiting:
            self._count(self._kind(other.traits), position, 1)
        return nodes

    def reachable(self, pod: Pod) -> NodeSet:
        """Return the nodes where affinity and spread are met: evictions alone could let the pod run there."""
        kind = self._kind(pod.traits)
        return self._required(pod, kind)

    def is_bearable(self, pod: Pod, position: int) -> bool:
        """Return whether the running pod breaks no anti-affinity or host port on its node.

        Affinity and spread do not count for a running pod.
        """
        return not self._closed(self._kind(pod.traits), later=True) >> position & 1

    def is_met(self, pod: Pod, position: int) -> bool:
        """Return whether the pod, counted at the position, meets all constraints after terminating pods have ended."""
        if not self.concerns(pod):
            return True
        kind = self._kind(pod.traits)
        self._select(kind)
        self._count(kind, position, -1)
        nodes = ~self._closed(kind, later=True) & self._required(pod, kind)
        self._count(kind, position, 1)
        return bool(nodes >> position & 1)

    def can_come(self, placed: Sequence[tuple[Pod, int]]) -> bool:
        """Return whether the pods, which are counted already, can start in some order without breaking their affinity.

        Two pods whose affinity requires each other cannot.
        """
        return not self._cannot_come(placed)

    def _cannot_come(self, placed: Sequence[tuple[Pod, int]]) -> list[tuple[Pod, int]]:
        """Return the pods that can start in no order beside the other pods of the list."""
        coming = list(placed)
        if not any(pod.traits.affinity for pod, _ in coming):
            return []
        for pod, _ in coming:
            self._select(self._kind(pod.traits))
        for pod, position in coming:
            self._count(self._kind(pod.traits), position, -1)
        while coming:
            left: list[tuple[Pod, int]] = []
            for pod, position in coming:
                kind = self._kind(pod.traits)
                if not kind.traits.affinity or self._beside(kind) >> position & 1:
                    self._count(kind, position, 1)
                else:
                    left.append((pod, position))
            if len(left) == len(coming):
                break
            coming = left
        for pod, position in coming:
            self._count(self._kind(pod.traits), position, 1)
        return coming

    def steady_nominees(self) -> list[tuple[Pod, int]]:
        """Return the nominated pods whose affinity and spread constraints are met now, with their positions."""
        met = [
            (pod, position)
            for pod, position in self._waiting()
            if (pod.traits.affinity or pod.traits.spread) and self.is_met(pod, position)
        ]
        blocked = {pod.id for pod, _ in self._cannot_come(met)}
        return [entry for entry in met if entry[0].id not in blocked] if blocked else met

    def keeps(self, nominees: Iterable[tuple[Pod, int]]) -> bool:
        """Return whether the constraints of these nominated pods are met, in some order of their starts.

        Pods that are no longer on the ledger do not count.
        """
        there = [entry for entry in nominees if entry[0].id in self._residents.get(entry[1], ())]
        return all(self.is_met(*entry) for entry in there) and self.can_come(there)

    def first_broken(self, placed: Sequence[tuple[Pod, int]]) -> Pod | None:
        """Return the first pod that breaks its constraints if the pods start in this order; None if none does.

        Nominated pods start later, so they do not count for affinity and spread.
        """
        kinds = [self._kind(pod.traits) for pod, _ in placed]
        for kind in kinds:
            self._select(kind)
        for kind, (_, position) in zip(kinds, placed, strict=True):
            self._count(kind, position, -1)
        broken: Pod | None = None
        waiting = self._waiting()
        for kind, (pod, position) in zip(kinds, placed, strict=True):
            if broken is None and self.concerns(pod):
                nodes = ~self._closed(kind, later=False) & self._required_without(waiting, pod, kind)
                broken = None if nodes >> position & 1 else pod
            self._count(kind, position, 1)
        return broken

    def scores(self, pod: Pod, preferences: Preferences) -> Iterator[tuple[NodeSet, int]]:
        """Yield sets of nodes with the score that the preferences on other pods add.

        For a topology spread constraint, the emptiest domain gets _MAX_SPREAD_SCORE, and the fullest domain 0.
        """
        for preference in preferences.pods:
            term = preference.term
            positions = (at for at, count in self._counts((term.selector,)).staying() if count > 0)
            yield self._domains(term.topology_key, positions), preference.weight
        for spread in preferences.spread:
            totals = self._totals(pod, spread, self._having(spread.topology_key))
            fewest, most = min(totals.values(), default=0), max(totals.values(), default=0)
            for value, nodes in self._node_sets.labelled(spread.topology_key).items():
                above = totals.get(value, fewest) - fewest
                yield nodes, _MAX_SPREAD_SCORE - _MAX_SPREAD_SCORE * above // max(1, most - fewest)

    def blockers(self, pod: Pod, position: int) -> frozenset[str] | None:
        """Return the ids of the pods that conflict with the pod on this node by anti-affinity or a host port.

        None: one of them belongs to another scheduler, so it cannot be evicted.
        """
        kind = self._kind(pod.traits)
        blockers: set[str] = set()
        for name, other, at in self._around(kind, position):
            if self._conflict(kind, other.kind, position, at):
                if not isinstance(name, str):
                    return None
                blockers.add(name)
        return frozenset(blockers)

    def hindrances(self, pod: Pod) -> Iterator[Hindrance]:
        """Yield the constraints that exclude nodes for the pod now."""
        kind = self._kind(pod.traits)
        for term in pod.traits.anti_affinity:
            closed = self._domains(term.topology_key, self._counts((term.selector,)).positions(later=False))
            yield Hindrance("its required pod anti-affinity", term.topology_key, closed)
        repelled: dict[str, NodeSet] = {}
        for term, counts in kind.repelled_by:
            # Skip terms without pods. Sort the rest, because the order in which terms were stored depends on
            # the past.
            if closed := self._domains(term.topology_key, counts.positions(later=False)):
                repelled[term.topology_key] = repelled.get(term.topology_key, 0) | closed
        for key in sorted(repelled):
            yield Hindrance("the required pod anti-affinity of other pods", key, repelled[key])
        if pod.traits.affinity:
            keys = ", ".join(dict.fromkeys(term.topology_key for term in pod.traits.affinity))
            yield Hindrance("its required pod affinity", keys, ~self._beside(kind))
        if pod.traits.spread:
            keys = ", ".join(dict.fromkeys(spread.topology_key for spread in pod.traits.spread))
            yield Hindrance("its topology spread", keys, ~self._evenly(pod, kind))
        for port in pod.traits.host_ports:
            yield Hindrance(f"its host port {port.port}", "", self._taken((port,), later=False))

    def _waiting(self) -> list[tuple[Pod, int]]:
        """Return the nominated pods that are counted on the nodes of their nominations."""
        return [
            (pod, position) for pod, position in self.waiting() if pod.id in self._residents.get(position, ())
        ]

    def _required(self, pod: Pod, kind: _Kind) -> NodeSet:
        """Return the nodes on which affinity and spread are met. Terminating pods do not count."""
        nodes = self._node_sets.everywhere
        if kind.traits.affinity:
            nodes &= self._beside(kind)
        if kind.traits.spread:
            nodes &= self._evenly(pod, kind)
        return nodes

    def _closed(self, kind: _Kind, *, later: bool) -> NodeSet:
        """Return the nodes that anti-affinity and host ports exclude."""
        closed = self._taken(kind.traits.host_ports, later=later)
        for term in kind.traits.anti_affinity:
            counts = self._counts((term.selector,))
            closed |= self._domains(term.topology_key, counts.positions(later=later))
        for term, counts in kind.repelled_by:
            closed |= self._domains(term.topology_key, counts.positions(later=later))
        return closed

    def _taken(self, ports: Sequence[HostPort], *, later: bool) -> NodeSet:
        closed = 0
        for port in ports:
            for other, counts in self._ports.items():
                if port.conflicts(other):
                    for position in counts.positions(later=later):
                        closed |= 1 << position
        return closed

    def _beside(self, kind: _Kind) -> NodeSet:
        """Return the nodes whose domains have pods that match all terms. If no such pod exists and the terms select
        the pod itself, return all nodes with the topology keys.
        """
        terms = kind.traits.affinity
        selection = tuple(term.selector for term in terms)
        positions = [position for position, count in self._counts(selection).staying() if count > 0]
        domains = [self._domains(term.topology_key, positions) for term in terms]
        if not any(domains):
            if not kind.is_selected(selection):
                return 0
            domains = [self._having(term.topology_key) for term in terms]
        nodes = self._node_sets.everywhere
        for domain in domains:
            nodes &= domain
        return nodes

    def _evenly(self, pod: Pod, kind: _Kind) -> NodeSet:
        """Return the nodes on which one more pod meets every spread constraint."""
        having = self._node_sets.everywhere
        for spread in kind.traits.spread:
            having &= self._having(spread.topology_key)
        nodes = having
        for spread in kind.traits.spread:
            nodes &= ~self._crowded(pod, kind, spread, having)
        return nodes

    def _crowded(self, pod: Pod, kind: _Kind, spread: SpreadConstraint, having: NodeSet) -> NodeSet:
        totals = self._totals(pod, spread, having)
        fewest = min(totals.values(), default=0) if len(totals) >= spread.min_domains else 0
        most = fewest + spread.max_skew - kind.is_selected((spread.selector,))
        crowded = 0
        for value, nodes in self._node_sets.labelled(spread.topology_key).items():
            if totals.get(value, 0) > most:
                crowded |= nodes
        return crowded

    def _totals(self, pod: Pod, spread: SpreadConstraint, having: NodeSet) -> dict[str, int]:
        """Return the number of selected pods by domain (label value), for domains with a node that counts."""
        counted = having & self._node_sets.matching(spread.node_terms)
        if spread.honors_taints:
            counted &= self._node_sets.tolerated(pod.constraints.tolerations)
        domains = self._node_sets.labelled(spread.topology_key)
        totals: dict[str, int] = {value: 0 for value, nodes in domains.items() if nodes & counted}
        for position, count in self._counts((spread.selector,)).staying():
            if counted >> position & 1:
                totals[label_of(self._nodes[position], spread.topology_key) or ""] += count
        return totals

    def _having(self, topology_key: str) -> NodeSet:
        nodes = 0
        for domain in self._node_sets.labelled(topology_key).values():
            nodes |= domain
        return nodes

    def _domains(self, topology_key: str, positions: Iterable[int]) -> NodeSet:
        """Return the nodes in the same domains as the nodes at these positions."""
        domains = self._node_sets.labelled(topology_key)
        values = {label_of(self._nodes[position], topology_key) for position in positions}
        nodes = 0
        for value in values:
            if value is not None:
                nodes |= domains[value]
        return nodes

    def _around(self, kind: _Kind, position: int) -> Iterator[tuple[Hashable, _Resident, int]]:
        """Yield the pods in the node's domains that do not terminate, as id, counts and position."""
        keys = {term.topology_key for term in kind.traits.anti_affinity}
        keys.update(term.topology_key for term, _ in kind.repelled_by)
        nodes = 1 << position
        for key in keys:
            nodes |= self._domains(key, (position,))
        for at in positions_in(nodes):
            for name, resident in self._residents.get(at, {}).items():
                if resident.held > resident.releasing:
                    yield name, resident, at

    def _conflict(self, kind: _Kind, other: _Kind, position: int, at: int) -> bool:
        """Return whether a pod of `kind` at `position` and a pod of `other` at `at` exclude each other."""
        if position == at and any(
            mine.conflicts(its) for mine in kind.traits.host_ports for its in other.traits.host_ports
        ):
            return True
        return any(
            selected.is_selected((term.selector,)) and self._domains(term.topology_key, (position,)) >> at & 1
            for terms, selected in ((kind.traits.anti_affinity, other), (other.traits.anti_affinity, kind))
            for term in terms
        )

    def _kind(self, traits: PodTraits) -> _Kind:
        known = self._by_identity.get(id(traits))
        if known is not None:
            return known[1]
        kind = self._kinds.get(traits)
        if kind is None:
            kind = self._kinds[traits] = self._new_kind(traits)
        self._by_identity[id(traits)] = (traits, kind)
        return kind

    def _new_kind(self, traits: PodTraits) -> _Kind:
        kind = _Kind(traits)
        kind.counts += [counts for selection, counts in self._selected.items() if kind.is_selected(selection)]
        kind.repelled_by += [
            (term, counts) for term, counts in self._repelling.items() if kind.is_selected((term.selector,))
        ]
        for term in dict.fromkeys(traits.anti_affinity):
            kind.counts.append(self._repelling_counts(term, kind))
        for port in dict.fromkeys(traits.host_ports):
            kind.counts.append(self._ports.setdefault(port, _Counts()))
        return kind

    def _repelling_counts(self, term: PodTerm, holder: _Kind) -> _Counts:
        """Return the counts of the pods with this anti-affinity term. Add a new term to the kinds that it selects."""
        counts = self._repelling.get(term)
        if counts is None:
            counts = self._repelling[term] = _Counts()
            for kind in (*self._kinds.values(), holder):
                if kind.is_selected((term.selector,)):
                    kind.repelled_by.append((term, counts))
        return counts

    def _counts(self, selection: _Selection) -> _Counts:
        """Return the counts of the pods that every selector selects, computed at the first use."""
        counts = self._selected.get(selection)
        if counts is None:
            counts = self._selected[selection] = _Counts()
            for kind in self._kinds.values():
                if kind.is_selected(selection):
                    kind.counts.append(counts)
            for position, residents in self._residents.items():
                for resident in residents.values():
                    if resident.kind.is_selected(selection):
                        _add(counts.held, position, resident.held)
                        _add(counts.releasing, position, resident.releasing)
        return counts

    def _select(self, kind: _Kind) -> None:
        """Create the counts for the kind's constraints, before a caller subtracts pods from the counts for a trial."""
        traits = kind.traits
        if traits.affinity:
            self._counts(tuple(term.selector for term in traits.affinity))
        for term in traits.anti_affinity:
            self._counts((term.selector,))
        for spread in traits.spread:
            self._counts((spread.selector,))

    def _change(self, name: Hashable, traits: PodTraits, position: int, sign: int) -> None:
        self.version += 1
        self._open.clear()
        resident = self._resident(name, traits, position)
        resident.held += sign
        self._count(resident.kind, position, sign)
        self._forget(name, resident, position)

    def _resident(self, name: Hashable, traits: PodTraits, position: int) -> _Resident:
        residents = self._residents.setdefault(position, {})
        resident = residents.get(name)
        if resident is None:
            resident = residents[name] = _Resident(self._kind(traits))
        return resident

    def _forget(self, name: Hashable, resident: _Resident, position: int) -> None:
        if not resident.held and not resident.releasing:
            del self._residents[position][name]

    @staticmethod
    def _count(kind: _Kind, position: int, sign: int) -> None:
        for counts in kind.counts:
            _add(counts.held, position, sign)


def _add(counts: dict[int, int], position: int, amount: int) -> None:
    count = counts.get(position, 0) + amount
    if count:
        counts[position] = count
    else:
        counts.pop(position, None)
