"""Disruption budgets: no rule chooses victims that the budgets protect."""

from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.eviction_limits import Budgets
from orchestrator.planner.model import Budget, Plan, Snapshot, Workload
from orchestrator.planner.settings import Settings
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running

QUOTAS = (project("a", 4000), project("b", 0))


def decide(budgets: list[Budget], *workloads: Workload) -> Plan:
    nodes = (node("node-1", 4),)
    return plan(Snapshot(nodes, QUOTAS, workloads, budgets=tuple(budgets)))


def lent(*names: str) -> list[Workload]:
    return [
        running(workload(name, "b", 1000), "node-1", index, started=index + 1)
        for index, name in enumerate(names)
    ]


def evicted(decision: Plan) -> list[str]:
    return sorted(each.pod for each in decision.evictions)


def test_a_protected_pod_keeps_running_and_another_is_evicted() -> None:
    borrowed = lent("w0", "w1", "w2", "w3")
    new = workload("new", "a", 1000)
    assert evicted(decide([], *borrowed, new)) == ["w3-0"]
    assert evicted(decide([Budget("keep", 0, ("w3-0",))], *borrowed, new)) == ["w2-0"]


def test_a_budget_for_one_of_two_lets_only_one_go() -> None:
    borrowed = lent("w0", "w1", "w2", "w3")
    new = workload("new", "a", 2000)
    assert evicted(decide([Budget("keep", 1, ("w2-0", "w3-0"))], *borrowed, new)) == ["w1-0", "w3-0"]


def test_when_budgets_protect_all_no_pod_is_evicted_and_the_reason_names_them() -> None:
    borrowed = lent("w0", "w1", "w2", "w3")
    pods = tuple(each.pods[0].id for each in borrowed)
    decision = decide([Budget("the budget team-b/keep", 0, pods)], *borrowed, workload("new", "a", 1000))
    assert not decision.evictions
    assert decision.pending["new"].message.endswith(
        "its possible victims are protected by the budget team-b/keep"
    )


def test_a_gang_is_protected_when_one_pod_too_many_would_go() -> None:
    gang = running(workload("gang", "b", 2000, pods=2, gang=True), "node-1")
    new = workload("new", "a", 4000)
    pods = ("gang-0", "gang-1")
    assert evicted(decide([Budget("keep", 2, pods)], gang, new)) == ["gang-0", "gang-1"]
    assert not decide([Budget("keep", 1, pods)], gang, new).evictions


def test_preemption_inside_a_project_keeps_budgets_too() -> None:
    low = running(workload("low", "a", 4000, priority=10), "node-1")
    high = workload("high", "a", 4000, priority=90)
    assert evicted(decide([], low, high)) == ["low-0"]
    assert not decide([Budget("keep", 0, ("low-0",))], low, high).evictions


def test_moving_work_together_keeps_budgets_too() -> None:
    nodes = tuple(node(f"node-{index}", 2) for index in range(2))
    small = [running(workload(f"s{index}", "a", 1000), f"node-{index}") for index in range(2)]
    snapshot = Snapshot(nodes, QUOTAS, (*small, workload("large", "a", 2000)))
    assert len(evicted(plan(snapshot))) == 1
    protected = replace(snapshot, budgets=(Budget("keep", 0, ("s0-0", "s1-0")),))
    assert not plan(protected).evictions


@pytest.mark.parametrize("rule", ["stale-gang", "unhealthy"])
@pytest.mark.parametrize("protection", ["none", "budget", "cap"])
def test_evictions_without_a_preemptor_keep_budgets_and_the_cap_too(rule: str, protection: str) -> None:
    job = running(workload("job", "a", 1000, minimum=2 if rule == "stale-gang" else 1), "node-1")
    job = replace(job, stale_since_us=1 if rule == "stale-gang" else 0)
    nodes = [node("node-1", unhealthy_gpus=(0,) if rule == "unhealthy" else ())]
    snapshot = Snapshot(
        tuple(nodes),
        QUOTAS,
        (job,),
        now_us=100_000_000,
        settings=Settings(max_evictions=0 if protection == "cap" else None),
        budgets=(Budget("keep", 0, ("job-0",)),) if protection == "budget" else (),
    )
    assert [each.rule for each in plan(snapshot).evictions] == ([rule] if protection == "none" else [])


@pytest.mark.parametrize(
    ("budgets", "gone", "pods", "allowed"),
    [
        ([], [], ["x"], True),
        ([Budget("a", 1, ("x", "y"))], [], ["x"], True),
        ([Budget("a", 1, ("x", "y"))], ["y"], ["x"], False),
        ([Budget("a", 1, ("x", "y"))], ["x"], ["x"], True),
        ([Budget("a", 1, ("x", "y"))], ["z"], ["x"], True),
        ([Budget("a", 1, ("x", "y"))], [], ["x", "y"], False),
        ([Budget("a", 9, ("x",)), Budget("b", 9, ("x",))], [], ["x"], False),
        ([Budget("a", 9, ("x",)), Budget("b", 0, ("y",))], [], ["x"], True),
    ],
)
def test_the_evictions_that_budgets_allow(
    budgets: list[Budget], gone: list[str], pods: list[str], allowed: bool
) -> None:
    some = workload("w", "a", 1000).pods[0]
    wanted = [replace(some, id=each) for each in pods]
    assert Budgets(budgets).allow(wanted, gone) is allowed
