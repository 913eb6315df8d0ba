"""Converts PodDisruptionBudgets for the planner: the protected pods, and the number of them that may be evicted now."""

from collections.abc import Collection, Iterable, Mapping

from orchestrator.cluster.last_object import LastObject
from orchestrator.cluster.objects import FINISHED, Pod, PodDisruptionBudget
from orchestrator.labels import matches_requirement
from orchestrator.observe.label_selectors import requirements_of
from orchestrator.observe.unreadable import Boundary, SkippedObject, Unreadable
from orchestrator.planner.model import Budget


class Budgets:
    """Reads each budget separately. If a budget cannot be read, no pod of its namespace is evicted."""

    def __init__(self, last: LastObject | None = None) -> None:
        self._boundary = Boundary(last)
        self.skipped: tuple[SkippedObject, ...] = ()

    def read(
        self,
        budgets: Iterable[PodDisruptionBudget],
        pods: Mapping[str, Pod],
        evicted: Collection[str],
        refused: Mapping[str, str],
    ) -> tuple[Budget, ...]:
        """Return the budgets for pods (by uid), sorted by name. Afterwards `skipped` has the unreadable budgets.

        `evicted` are pods (uids) whose eviction has begun, although the watch does not show it yet. They count as
        evicted. A budget whose status is older than its specification allows no eviction. `refused` maps the uid of a
        pod to the reason if the API server has recently refused its eviction.
        """
        read = [Budget(f"an answer to the last try ({why})", 0, (uid,)) for uid, why in refused.items()]
        skipped: list[SkippedObject] = []
        known = list(budgets)
        bound = _bound_by_namespace(pods, refused) if known else {}
        for budget in known:
            metadata = budget.metadata
            name = f"the disruption budget {metadata.namespace}/{metadata.name}"
            there = bound.get(metadata.namespace, [])
            reading = self._boundary.read(
                budget.resource.kind,
                metadata,
                lambda: _read(name, budget, there, evicted),  # noqa: B023 - at once
            )
            if isinstance(reading, Unreadable):
                why = f"{reading.why}; no pod of its namespace is evicted"
                skipped.append(
                    SkippedObject("PodDisruptionBudget", metadata.namespace, metadata.name, metadata.uid, why)
                )
                reading = Budget(name, 0, tuple(sorted(pod.metadata.uid for pod in there)))
            if reading.pods:
                read.append(reading)
        self.skipped = tuple(skipped)
        return tuple(sorted(read, key=lambda budget: (budget.name, budget.pods)))


def planner_budgets(
    budgets: Iterable[PodDisruptionBudget],
    pods: Mapping[str, Pod],
    evicted: Collection[str],
    refused: Mapping[str, str],
) -> tuple[Budget, ...]:
    """Return the result of `Budgets.read`, for a single call."""
    return Budgets().read(budgets, pods, evicted, refused)


def _read(name: str, budget: PodDisruptionBudget, pods: Iterable[Pod], evicted: Collection[str]) -> Budget:
    selector = budget.spec.selector
    requirements = None if selector is None else requirements_of(selector)
    mine = tuple(
        sorted(
            pod.metadata.uid
            for pod in pods
            if requirements is not None
            and all(matches_requirement(pod.metadata.labels, requirement) for requirement in requirements)
        )
    )
    current = budget.status.observed_generation >= budget.metadata.generation
    allowed = budget.status.disruptions_allowed if current else 0
    return Budget(name, max(0, allowed - sum(uid in evicted for uid in mine)), mine)


def _bound_by_namespace(pods: Mapping[str, Pod], refused: Collection[str]) -> dict[str, list[Pod]]:
    bound: dict[str, list[Pod]] = {}
    for pod in pods.values():
        if (
            pod.spec.node_name
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in FINISHED
            and pod.metadata.uid not in refused
        ):
            bound.setdefault(pod.metadata.namespace, []).append(pod)
    return bound
