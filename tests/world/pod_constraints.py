"""Required constraints between the pods of a snapshot, checked on Kubernetes' own types by brute force."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from orchestrator.planner.model import Constraints, PodState
from tests.planner.constraint_judge import Judge, Seen
from tests.world.facts import all_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.planner.model import Node, Pod, Snapshot
    from orchestrator.planner.traits import PodSelector, PodTerm, PodTraits, SpreadConstraint

PREFIX = "muster-"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class PodConstraints:
    """The pods of a snapshot in the form of the checker of Kubernetes' constraints."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._judge = Judge({"nodes": list(map(_node, snapshot.nodes))})
        self.foreign = [
            _seen(f"{node.name}-{number}", traits, Constraints(), node.name)
            for node in snapshot.nodes
            for number, traits in enumerate(node.foreign_traits)
        ]
        traits = chain(
            (pod.traits for _, pod in all_pods(snapshot)),
            (other for node in snapshot.nodes for other in node.foreign_traits),
        )
        self.are_none = not any(each.is_constrained for each in traits)

    def on_nodes(self, pods: Iterable[Pod]) -> list[Seen]:
        """Return those pods that are on a node of the snapshot."""
        return [self.seen(pod, pod.node) for pod in pods if pod.node in self._judge.nodes]

    def seen(self, pod: Pod, node: str | None) -> Seen:
        return _seen(pod.id, pod.traits, pod.constraints, node or "")

    def has_order(self, new: Sequence[Seen], present: Sequence[Seen], leaving: Sequence[Seen]) -> bool:
        """Return whether the new pods can start in some order so that each satisfies all constraints at its start."""
        return self._judge.has_order(new, present, leaving)

    def placements(
        self, pods: Sequence[tuple[Pod, Iterable[str]]], present: Sequence[Seen]
    ) -> Iterator[tuple[str, ...]]:
        """Yield nodes for the pods, from the candidates of each, so that all constraints hold when they start in this
        order.
        """
        if not pods:
            yield ()
            return
        (pod, nodes), *rest = pods
        for node in nodes:
            there = self.seen(pod, node)
            if not any(self._judge.broken(there, present)):
                for others in self.placements(rest, [*present, there]):
                    yield (node, *others)


def releasing(snapshot: Snapshot, *, only_stuck: bool = False) -> list[Pod]:
    """Return the terminating pods; with `only_stuck`, those that do not end."""
    return [
        pod
        for _, pod in all_pods(snapshot)
        if pod.state is PodState.RELEASING and (pod.stuck or not only_stuck)
    ]


def _node(node: Node) -> Mapping[str, Any]:
    return {
        "name": node.name,
        "gpus": node.gpu_count,
        "labels": dict(node.labels),
        "taints": [{"key": taint.key} for taint in node.taints],
    }


def _seen(name: str, traits: PodTraits, constraints: Constraints, node: str) -> Seen:
    return Seen(name, _workload(traits, constraints.node_selector), node)


@lru_cache(maxsize=4096)
def _workload(traits: PodTraits, node_selector: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    ports = [
        {"hostPort": port.port, "protocol": port.protocol, "hostIP": port.address}
        for port in traits.host_ports
    ]
    spec = {
        "containers": [{"ports": ports, "resources": {"limits": {}}}],
        "nodeSelector": dict(node_selector),
        "affinity": {
            "podAffinity": {REQUIRED: list(map(_term, traits.affinity))},
            "podAntiAffinity": {REQUIRED: list(map(_term, traits.anti_affinity))},
        },
        "topologySpreadConstraints": list(map(_spread, traits.spread)),
    }
    template = {"metadata": {"labels": dict(traits.labels)}, "spec": spec}
    return {"project": traits.namespace.removeprefix(PREFIX), "template": template}


def _term(term: PodTerm) -> Mapping[str, Any]:
    namespaces = term.selector.namespaces
    within: dict[str, Any] = {"namespaceSelector": {}}
    if namespaces is not None:
        within = {"namespaces": list(namespaces)}
    return {"labelSelector": _selector(term.selector), "topologyKey": term.topology_key, **within}


def _spread(spread: SpreadConstraint) -> Mapping[str, Any]:
    return {
        "maxSkew": spread.max_skew,
        "topologyKey": spread.topology_key,
        "labelSelector": _selector(spread.selector),
        "minDomains": spread.min_domains,
        "nodeAffinityPolicy": "Honor" if spread.node_terms else "Ignore",
        "nodeTaintsPolicy": "Honor" if spread.honors_taints else "Ignore",
    }


def _selector(selector: PodSelector) -> Mapping[str, Any]:
    return {
        "matchExpressions": [
            {"key": one.key, "operator": one.operator, "values": list(one.values)}
            for one in selector.requirements
        ]
    }
