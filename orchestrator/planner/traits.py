"""Constraints between pods: affinity, anti-affinity, topology spread, host ports and preferences.

`model.Constraints` depend only on nodes. The constraints here depend on other pods too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.labels import LabelRequirement, matches_requirement

NAME_LABELS: Final = frozenset(("kubernetes.io/hostname", "metadata.name"))
"""The label of the host name, and the field for the node name in node affinity.

For a node without the label, both have the node's name as the value.
"""

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared, never listened on


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods of these namespaces whose labels match all requirements. None: the pods of every namespace."""

    namespaces: tuple[str, ...] | None
    requirements: tuple[LabelRequirement, ...] = ()

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the selector selects a pod of the namespace with these labels."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return all(matches_requirement(labels, requirement) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A term of a required pod affinity or anti-affinity: the selected pods, in a domain of the topology key."""

    selector: PodSelector
    topology_key: str


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint with `DoNotSchedule`.

    A domain of the topology key has at most `max_skew` selected pods more than the domain with the fewest. If there are
    fewer domains than `min_domains`, the fewest counts as 0. Only nodes that match `node_terms` count, and only those
    without untolerated taints if `honors_taints` is set.
    """

    topology_key: str
    max_skew: int
    selector: PodSelector
    min_domains: int = 1
    node_terms: tuple[tuple[LabelRequirement, ...], ...] = ()
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a pod uses at one address of the node, or at all of them (`ANY_ADDRESS`)."""

    port: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether two pods with these ports cannot be on one node."""
        if self.port != other.port or self.protocol != other.protocol:
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class NodePreference:
    """A preferred node affinity: a node that matches all requirements gets `weight` added to its score."""

    weight: int
    requirements: tuple[LabelRequirement, ...]


@dataclass(frozen=True, slots=True)
class PodPreference:
    """A preferred pod affinity: a node with a selected pod in its domain gets `weight`, negative for anti-affinity."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of a pod. `spread` are the topology spread constraints with `ScheduleAnyway`."""

    nodes: tuple[NodePreference, ...] = ()
    pods: tuple[PodPreference, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTraits:
    """The properties of a pod that constraints of other pods select by, and its own constraints on other pods."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    preferences: Preferences | None = None

    @property
    def is_constrained(self) -> bool:
        """Whether the pod has required constraints of its own that can exclude nodes."""
        return bool(self.anti_affinity or self.affinity or self.spread or self.host_ports)

    @property
    def looks_at_others(self) -> bool:
        """Whether the nodes that the pod may use, or prefers, depend on other pods."""
        preferences = self.preferences
        return self.is_constrained or bool(preferences and (preferences.pods or preferences.spread))


NO_TRAITS: Final = PodTraits()
