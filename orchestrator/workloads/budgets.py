"""PodDisruptionBudgets in the planner's terms: how many of which pods may be evicted now."""

from collections.abc import Collection, Iterable, Mapping

from orchestrator.cluster.objects import (
    FINISHED,
    LabelSelector,
    LabelSelectorRequirement,
    Pod,
    PodDisruptionBudget,
)
from orchestrator.planner.model import Budget


def planner_budgets(
    budgets: Iterable[PodDisruptionBudget],
    pods: Mapping[str, Pod],
    evicted: Collection[str],
    refused: Mapping[str, str],
) -> tuple[Budget, ...]:
    """The budgets that protect any of the pods (by uid), by name.

    An eviction that was begun and that the watch has not shown yet (`evicted`) counts already. A budget whose status
    is older than the budget allows nothing. `refused` has, by uid, why the API server did not evict a pod just now.
    """
    found = [Budget(f"an answer to the last try ({why})", 0, (uid,)) for uid, why in refused.items()]
    known = list(budgets)
    if known:
        bound = _bound_by_namespace(pods)
        for budget in known:
            mine = tuple(
                sorted(
                    each.metadata.uid
                    for each in bound.get(budget.metadata.namespace, ())
                    if each.metadata.uid not in refused and _protects(budget, each)
                )
            )
            if mine:
                current = budget.status.observed_generation >= budget.metadata.generation
                allowed = budget.status.disruptions_allowed if current else 0
                begun = sum(uid in evicted for uid in mine)
                name = f"the disruption budget {budget.metadata.namespace}/{budget.metadata.name}"
                found.append(Budget(name, max(0, allowed - begun), mine))
    return tuple(sorted(found, key=lambda each: (each.name, each.pods)))


def _bound_by_namespace(pods: Mapping[str, Pod]) -> dict[str, list[Pod]]:
    bound: dict[str, list[Pod]] = {}
    for pod in pods.values():
        if (
            pod.spec.node_name
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in FINISHED
        ):
            bound.setdefault(pod.metadata.namespace, []).append(pod)
    return bound


def _protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    return selector is not None and selects(selector, pod.metadata.labels)


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether everything in the selector holds for the labels."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(each, labels) for each in selector.match_expressions
    )


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True  # what is not understood protects
