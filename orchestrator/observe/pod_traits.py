"""A pod's affinity to pods, topology spread and host ports in the planner's terms. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Final

from orchestrator.cluster.objects import (
    LabelSelector,
    NodeSelector,
    Pod,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from orchestrator.cluster.quantity import shortened
from orchestrator.labels import LabelRequirement
from orchestrator.observe.label_selectors import requirements_of
from orchestrator.observe.node_terms import Terms, terms_of
from orchestrator.observe.unreadable import UnreadableRequest
from orchestrator.planner.traits import (
    ANY_ADDRESS,
    HostPort,
    NodePreference,
    PodPreference,
    PodSelector,
    PodTerm,
    PodTraits,
    Preferences,
    SpreadConstraint,
)

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The API server writes each namespace's name into this label. So the operator does not need to read Namespace objects.
"""

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
MAX_TERMS: Final = 32
"""Maximum number of terms and spread constraints of a pod. Each is compared with every pod; people write 1 to 3."""
_MAX_SHARED: Final = 10_000
_NO_PODS: Final = PodSelector(())


def pod_traits(pod: Pod) -> PodTraits:
    """Return the traits of the pod. Raises UnreadableRequest for a constraint that is not implemented."""
    spec = pod.spec
    if spec.affinity is None and not spec.topology_spread_constraints:
        return _shared(_traits(pod))
    required, apart = _affinity_terms(pod)
    preferences = _preferences(pod)
    count = len(required) + len(apart) + len(spec.topology_spread_constraints)
    count += len(preferences.nodes) + len(preferences.pods)
    if count > MAX_TERMS:
        raise UnreadableRequest(
            f"it has {count} terms of affinity to pods, preferences and topology spread constraints: "
            f"at most {MAX_TERMS} are read"
        )
    return _shared(
        replace(
            _traits(pod),
            affinity=tuple(_term(pod, term) for term in required),
            # A term without a selector selects no pod, so it excludes no node.
            anti_affinity=tuple(_term(pod, term) for term in apart if term.label_selector is not None),
            spread=_spread(pod, DO_NOT_SCHEDULE),
            preferences=None if preferences == Preferences() else preferences,
        )
    )


def bound_traits(pod: Pod) -> PodTraits:
    """Return the traits of a bound pod, even if its constraints cannot be read.

    If an anti-affinity cannot be read, it excludes more pods than it should, never fewer.
    """
    _, apart = _affinity_terms(pod)
    selecting = [term for term in apart if term.label_selector is not None]
    terms = [_widest_term(pod, term) for term in selecting[:MAX_TERMS]]
    terms += _all_pods_apart(term.topology_key for term in selecting[MAX_TERMS:])
    return _shared(replace(_traits(pod), anti_affinity=tuple(terms)))


def in_order(traits: Iterable[PodTraits]) -> tuple[PodTraits, ...]:
    """Return the traits in an order that does not depend on the order of the input."""
    return tuple(sorted(traits, key=attrgetter("namespace", "labels")))


def names_of(selector: LabelSelector) -> tuple[str, ...] | None:
    """Return the namespaces that the namespace selector names; None: all namespaces.

    Raises UnreadableRequest for a selector on any label other than NAMESPACE_NAME_LABEL.
    """
    requirements = requirements_of(selector)
    for requirement in requirements:
        if requirement.key != NAMESPACE_NAME_LABEL or requirement.operator != "In":
            raise UnreadableRequest(
                f"its namespaceSelector is on the label {shortened(requirement.key)}: only {NAMESPACE_NAME_LABEL} with "
                "values, or an empty selector, is implemented; use namespaces instead"
            )
    if not requirements:
        return None
    first, *others = requirements
    return tuple(value for value in first.values if all(value in other.values for other in others))


def _affinity_terms(pod: Pod) -> tuple[Sequence[PodAffinityTerm], Sequence[PodAffinityTerm]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return (), ()
    return (
        affinity.pod_affinity.required if affinity.pod_affinity else (),
        affinity.pod_anti_affinity.required if affinity.pod_anti_affinity else (),
    )


def _traits(pod: Pod) -> PodTraits:
    """Return the traits without constraints on other pods: namespace, labels and host ports."""
    metadata = pod.metadata
    labels = tuple(sorted(metadata.labels.items()))
    return PodTraits(metadata.namespace, labels, host_ports=tuple(_host_ports(pod)))


def _preferences(pod: Pod) -> Preferences:
    affinity = pod.spec.affinity
    on_nodes = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
    nodes = [
        NodePreference(
            preferred.weight, terms_of(NodeSelector(node_selector_terms=[preferred.preference]))[0]
        )
        for preferred in on_nodes
        # A preference without requirements matches every node.
        if preferred.preference.match_expressions or preferred.preference.match_fields
    ]
    pods = [
        PodPreference(sign * preferred.weight, _term(pod, preferred.pod_affinity_term))
        for sign, terms in (
            (1, affinity.pod_affinity if affinity else None),
            (-1, affinity.pod_anti_affinity if affinity else None),
        )
        for preferred in (terms.preferred if terms else ())
    ]
    return Preferences(tuple(nodes), tuple(pods), _spread(pod, SCHEDULE_ANYWAY))


@lru_cache(_MAX_SHARED)
def _shared(traits: PodTraits) -> PodTraits:
    """Return the same object for equal traits, because the planner compares them by identity."""
    return traits


def _term(pod: Pod, term: PodAffinityTerm) -> PodTerm:
    namespaces: tuple[str, ...] | None = tuple(term.namespaces)
    if term.namespace_selector is not None:
        named = names_of(term.namespace_selector)
        namespaces = None if named is None else tuple(dict.fromkeys((*term.namespaces, *named)))
    elif not namespaces:
        namespaces = (pod.metadata.namespace,)
    if term.label_selector is None:
        return PodTerm(_NO_PODS, term.topology_key)
    requirements = (
        *requirements_of(term.label_selector),
        *_equal_labels(pod, term.match_label_keys),
        *_other_labels(pod, term.mismatch_label_keys),
    )
    return PodTerm(PodSelector(namespaces, requirements), term.topology_key)


def _widest_term(pod: Pod, term: PodAffinityTerm) -> PodTerm:
    try:
        return _term(pod, term)
    except ValueError:
        return _all_pods_apart([term.topology_key])[0]


def _all_pods_apart(topology_keys: Iterable[str]) -> list[PodTerm]:
    """Return, for each topology key, an anti-affinity term that excludes all pods from the domain."""
    return [PodTerm(PodSelector(None), key) for key in dict.fromkeys(topology_keys)]


def _equal_labels(pod: Pod, keys: Iterable[str]) -> Iterable[LabelRequirement]:
    """Return the requirements for `matchLabelKeys` as the API server adds them, without keys that the pod lacks."""
    labels: Mapping[str, str] = pod.metadata.labels
    return (LabelRequirement(key, "In", (labels[key],)) for key in keys if key in labels)


def _other_labels(pod: Pod, keys: Iterable[str]) -> Iterable[LabelRequirement]:
    labels: Mapping[str, str] = pod.metadata.labels
    return (LabelRequirement(key, "NotIn", (labels[key],)) for key in keys if key in labels)


def _spread(pod: Pod, effect: str) -> tuple[SpreadConstraint, ...]:
    constraints = pod.spec.topology_spread_constraints
    for constraint in constraints:
        if constraint.when_unsatisfiable not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
            raise UnreadableRequest(
                "its topology spread constraint has whenUnsatisfiable "
                f"{shortened(constraint.when_unsatisfiable)}: allowed are {DO_NOT_SCHEDULE} and {SCHEDULE_ANYWAY}"
            )
    return tuple(
        _spread_constraint(pod, constraint)
        for constraint in constraints
        if constraint.when_unsatisfiable == effect
    )


def _spread_constraint(pod: Pod, constraint: TopologySpreadConstraint) -> SpreadConstraint:
    selector = constraint.label_selector
    selected = () if selector is None else requirements_of(selector)
    requirements = (*selected, *_equal_labels(pod, constraint.match_label_keys))
    affinity, taints = (
        _is_honored(policy, default)
        for policy, default in (
            (constraint.node_affinity_policy, "Honor"),
            (constraint.node_taints_policy, "Ignore"),
        )
    )
    return SpreadConstraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        # As in kube-scheduler, an empty selector counts no pods.
        selector=PodSelector((pod.metadata.namespace,), requirements)
        if requirements and selector
        else _NO_PODS,
        min_domains=constraint.min_domains or 1,
        node_terms=_own_node_terms(pod) if affinity else (),
        honors_taints=taints,
    )


def _is_honored(policy: str | None, default: str) -> bool:
    if policy not in (None, "Honor", "Ignore"):
        raise UnreadableRequest(
            f"its topology spread constraint has the policy {shortened(policy or '')}: allowed are Honor and Ignore"
        )
    return (policy or default) == "Honor"


def _own_node_terms(pod: Pod) -> Terms:
    """Return the terms of the pod's node affinity and node selector, without the terms of PVCs and ResourceClaims."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    selected = tuple(
        LabelRequirement(key, "In", (value,)) for key, value in sorted(spec.node_selector.items())
    )
    terms = terms_of(affinity)
    if not selected:
        return terms
    return tuple((*selected, *term) for term in terms) if terms else (selected,)


def _host_ports(pod: Pod) -> Iterable[HostPort]:
    """Return the host ports that containers and sidecars use."""
    spec = pod.spec
    sidecars = (starter for starter in spec.init_containers if starter.restart_policy == "Always")
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield HostPort(port.host_port, port.protocol or "TCP", port.host_ip or ANY_ADDRESS)
