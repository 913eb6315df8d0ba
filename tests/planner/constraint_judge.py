"""Required constraints between pods, checked on Kubernetes' own types by brute force.

It shares no code with the planner. A world is the plain data of a snapshot file whose workloads have templates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Any, NamedTuple

World = Mapping[str, Any]
GPU = "nvidia.com/gpu"
ANY = ".".join("0000")


class Seen(NamedTuple):
    """A pod: its id, its workload in the file, and its node ("" for none)."""

    id: str
    workload: Mapping[str, Any]
    node: str

    @property
    def namespace(self) -> str:
        return f"muster-{self.workload['project']}"

    @property
    def labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.workload["template"]["metadata"]["labels"]
        return labels

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.workload["template"]["spec"]
        return spec

    @property
    def gpus(self) -> int:
        return int(self.spec["containers"][0]["resources"]["limits"].get(GPU, 0))

    @property
    def ports(self) -> list[tuple[str, int, str]]:
        listed = self.spec["containers"][0].get("ports", [])
        return [(one.get("protocol", "TCP"), one["hostPort"], one.get("hostIP", ANY)) for one in listed]

    def terms(self, kind: str) -> list[Mapping[str, Any]]:
        affinity = self.spec.get("affinity", {}).get(kind, {})
        return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", []))


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions", []):
        has, values = one["key"] in labels, one.get("values", [])
        value = labels.get(one["key"])
        good = {
            "In": has and value in values,
            "NotIn": not has or value not in values,
            "Exists": has,
            "DoesNotExist": not has,
        }[one["operator"]]
        if not good:
            return False
    return True


def term_matches(owner: Seen, term: Mapping[str, Any], other: Seen) -> bool:
    """Return whether a term of the owner's constraints selects the other pod."""
    names = term.get("namespaces", [])
    selector = term.get("namespaceSelector")
    if selector == {}:
        within = True
    elif selector is not None:
        own = {"kubernetes.io/metadata.name": other.namespace}
        within = other.namespace in names or matches(selector, own)
    else:
        within = other.namespace in (names or [owner.namespace])
    if not within or not matches(term.get("labelSelector"), other.labels):
        return False
    if any(
        other.labels.get(key) != owner.labels[key]
        for key in term.get("matchLabelKeys", [])
        if key in owner.labels
    ):
        return False
    return not any(
        other.labels.get(key) == owner.labels[key]
        for key in term.get("mismatchLabelKeys", [])
        if key in owner.labels
    )


class Judge:
    """Checks placements in one world."""

    def __init__(self, world: World) -> None:
        self.nodes: dict[str, Mapping[str, Any]] = {node["name"]: node for node in world["nodes"]}

    def domain(self, node: str, key: str) -> str | None:
        labels: Mapping[str, str] = self.nodes[node].get("labels", {})
        return labels.get(key, node if key == "kubernetes.io/hostname" else None)

    def is_same_domain(self, one: str, other: str, key: str) -> bool:
        domain = self.domain(one, key)
        return domain is not None and domain == self.domain(other, key)

    def broken(self, pod: Seen, others: Sequence[Seen], leaving: Sequence[Seen] = ()) -> Iterator[str]:
        """Yield the names of the constraints that the pod breaks on its node, beside `others` and terminating pods."""
        for other in (*others, *leaving):
            for one, its in ((pod, other), (other, pod)):
                for term in one.terms("podAntiAffinity"):
                    if term_matches(one, term, its) and self.is_same_domain(
                        pod.node, other.node, term["topologyKey"]
                    ):
                        yield f"anti-affinity of {one.id} with {its.id}"
            if other.node == pod.node and self._ports_conflict(pod, other):
                yield f"host port of {pod.id} and {other.id}"
        yield from self._broken_affinity(pod, others)
        for constraint in pod.spec.get("topologySpreadConstraints", []):
            yield from self._broken_spread(pod, constraint, others)

    @staticmethod
    def _ports_conflict(pod: Seen, other: Seen) -> bool:
        return any(
            mine[:2] == its[:2] and (mine[2] == its[2] or ANY in (mine[2], its[2]))
            for mine, its in product(pod.ports, other.ports)
        )

    def _broken_affinity(self, pod: Seen, others: Sequence[Seen]) -> Iterator[str]:
        terms = pod.terms("podAffinity")
        if not terms:
            return
        if any(self.domain(pod.node, term["topologyKey"]) is None for term in terms):
            yield f"affinity of {pod.id}: the node lacks a label"
            return
        matching = [other for other in others if all(term_matches(pod, term, other) for term in terms)]
        anywhere = any(
            self.domain(other.node, term["topologyKey"]) is not None for other in matching for term in terms
        )
        if not anywhere and all(term_matches(pod, term, pod) for term in terms):
            return
        for term in terms:
            if not any(self.is_same_domain(pod.node, other.node, term["topologyKey"]) for other in matching):
                yield f"affinity of {pod.id}"

    def _broken_spread(
        self, pod: Seen, constraint: Mapping[str, Any], others: Sequence[Seen]
    ) -> Iterator[str]:
        keys = [one["topologyKey"] for one in pod.spec["topologySpreadConstraints"]]
        key = constraint["topologyKey"]
        if any(self.domain(pod.node, one) is None for one in keys):
            yield f"spread of {pod.id}: the node lacks a label"
            return
        counts: Counter[str] = Counter()
        for node in self.nodes:
            if all(self.domain(node, one) is not None for one in keys) and self._counts(
                pod, constraint, node
            ):
                counts[self.domain(node, key) or ""] += 0
        eligible = [node for node in self.nodes if self._counts(pod, constraint, node)]
        for other in others:
            if (
                other.node not in eligible
                or other.namespace != pod.namespace
                or not self._is_selected(pod, constraint, other)
            ):
                continue
            if all(self.domain(other.node, one) is not None for one in keys):
                counts[self.domain(other.node, key) or ""] += 1
        fewest = min(counts.values(), default=0)
        if len(counts) < constraint.get("minDomains", 1):
            fewest = 0
        own = self._is_selected(pod, constraint, pod)
        if counts[self.domain(pod.node, key) or ""] + own - fewest > constraint["maxSkew"]:
            yield f"spread of {pod.id} over {key}"

    def _is_selected(self, owner: Seen, constraint: Mapping[str, Any], other: Seen) -> bool:
        selector = constraint.get("labelSelector")
        keys = [key for key in constraint.get("matchLabelKeys", []) if key in owner.labels]
        if selector is None or (not selector and not keys):
            return False
        return matches(selector, other.labels) and all(
            other.labels.get(key) == owner.labels[key] for key in keys
        )

    def _counts(self, pod: Seen, constraint: Mapping[str, Any], node: str) -> bool:
        labels, taints = self.nodes[node].get("labels", {}), self.nodes[node].get("taints", [])
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor":
            for key, value in pod.spec.get("nodeSelector", {}).items():
                if labels.get(key) != value:
                    return False
        return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or self._tolerates(pod, taints)

    @staticmethod
    def _tolerates(pod: Seen, taints: Sequence[Mapping[str, str]]) -> bool:
        return all(
            any(
                one.get("operator") == "Exists" and one["key"] == taint["key"]
                for one in pod.spec.get("tolerations", [])
            )
            for taint in taints
        )

    def admits(self, pod: Seen, others: Sequence[Seen]) -> bool:
        """Return whether the node has the GPUs and labels for the pod, and no taint against it."""
        node = self.nodes[pod.node]
        held = sum(other.gpus for other in others if other.node == pod.node)
        labels = node.get("labels", {})
        return (
            held + pod.gpus <= node["gpus"]
            and all(labels.get(key) == value for key, value in pod.spec.get("nodeSelector", {}).items())
            and self._tolerates(pod, node.get("taints", []))
        )

    def has_order(self, new: Sequence[Seen], present: Sequence[Seen], leaving: Sequence[Seen]) -> bool:
        """Return whether the new pods can start in some order so that each satisfies all constraints at its start."""
        failed: set[frozenset[str]] = set()

        def come(waiting: Sequence[Seen], placed: Sequence[Seen]) -> bool:
            names = frozenset(pod.id for pod in waiting)
            if not waiting or names in failed:
                return not waiting
            for pod in waiting:
                others = [other for other in waiting if other is not pod]
                if not any(self.broken(pod, placed, leaving)) and come(others, [*placed, pod]):
                    return True
            failed.add(names)
            return False

        return come(new, present)

    def can_place(self, pods: Sequence[Seen], present: Sequence[Seen]) -> Sequence[Seen] | None:
        """Return placements for all pods, started one by one in any order on any nodes; None if there are none."""
        orders = {tuple(pod.id for pod in order): order for order in permutations(pods)}
        if len({id(pod.workload) for pod in pods}) == 1:
            orders = dict(list(orders.items())[:1])  # the pods are all equal
        for order, nodes in product(orders.values(), product(self.nodes, repeat=len(pods))):
            placed = list(present)
            for pod, node in zip(order, nodes, strict=True):
                there = pod._replace(node=node)
                if not self.admits(there, placed) or any(self.broken(there, placed)):
                    break
                placed.append(there)
            else:
                return placed[len(present) :]
        return None
