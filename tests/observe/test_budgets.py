"""Table of PodDisruptionBudgets and the budgets that the planner reads from them."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Pod, PodDisruptionBudget
from orchestrator.observe.budgets import planner_budgets
from tests.observe.objects import by_uid, decoded, pod

PODS: dict[str, Pod] = by_uid(
    pod("a", labels={"app": "x"}, node="n"),
    pod("b", labels={"app": "x", "tier": "1"}, node="n"),
    pod("c", labels={"app": "y"}, node="n"),
    pod("waits", labels={"app": "x"}),
    pod("going", labels={"app": "x"}, node="n", deletionTimestamp="2026-11-21T10:00:00Z"),
    pod("done", labels={"app": "x"}, node="n", phase="Succeeded"),
    pod("elsewhere", namespace="other", labels={"app": "x"}, node="n"),
)


def budget(selector: dict[str, Any] | None, allowed: int, *, observed: int = 1) -> PodDisruptionBudget:
    return decoded(
        PodDisruptionBudget,
        metadata={"name": "keep", "namespace": "muster-team-a", "uid": "u", "generation": 1},
        spec={} if selector is None else {"selector": selector},
        status={"disruptionsAllowed": allowed, "observedGeneration": observed},
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "x"}}, ("uid-a", "uid-b")),
        ({}, ("uid-a", "uid-b", "uid-c")),
        (None, None),
        ({"matchLabels": {"app": "nobody"}}, None),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["y", "z"]}]}, ("uid-c",)),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["y"]}]}, ("uid-a", "uid-b")),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, ("uid-b",)),
        (
            {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}], "matchLabels": {"app": "x"}},
            ("uid-a",),
        ),
    ],
)
def test_a_budget_protects_the_bound_pods_of_its_selector(
    selector: dict[str, Any] | None, expected: tuple[str, ...] | None
) -> None:
    found = planner_budgets([budget(selector, 1)], PODS, (), {})
    assert [(each.name, each.allowed, each.pods) for each in found] == (
        [] if expected is None else [("the disruption budget muster-team-a/keep", 1, expected)]
    )


@pytest.mark.parametrize(
    ("allowed", "observed", "evicted", "expected"),
    [(2, 1, (), 2), (2, 0, (), 0), (2, 1, ("uid-a",), 1), (0, 1, ("uid-a",), 0), (2, 1, ("uid-c",), 2)],
)
def test_a_budget_allows_its_status_less_the_evictions_that_have_begun(
    allowed: int, observed: int, evicted: tuple[str, ...], expected: int
) -> None:
    (found,) = planner_budgets(
        [budget({"matchLabels": {"app": "x"}}, allowed, observed=observed)], PODS, evicted, {}
    )
    assert found.allowed == expected


def test_a_refused_eviction_is_not_tried_again_at_once() -> None:
    first, second = planner_budgets(
        [budget({"matchLabels": {"app": "x"}}, 1)], PODS, (), {"uid-a": "needs 2 pods"}
    )
    assert (first.allowed, first.pods) == (0, ("uid-a",))
    assert "needs 2 pods" in first.name
    assert second.pods == ("uid-b",)
