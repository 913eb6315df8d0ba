"""The differences between two states of a cluster, as the simulation reports them."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.planner import plan
from orchestrator.simulation.outcome import held_gpu_milli, outcome
from orchestrator.simulation.run import settle
from tests.planner import builders
from tests.simulation.clusters import A_1, B_1, B_2, a_snapshot, on_parts_by_memory, one_claim_two_borrowers


def test_an_eviction_names_loser_winner_rule_and_whether_the_loser_runs_again() -> None:
    before = a_snapshot(B_1, B_2)
    run = settle(replace(before, workloads=(*before.workloads, A_1)))
    result = outcome(before, plan(before), run)
    (evicted,) = result.evicted
    assert (evicted.project, evicted.name, evicted.gpu_milli) == ("team-b", "b-2", 2000)
    assert (evicted.beneficiary_project, evicted.beneficiary, evicted.rule) == ("team-a", "a-1", "quota")
    assert not evicted.runs_again
    assert [(each.name, each.is_new) for each in result.waiting] == [("b-2", True)]
    assert [each.name for each in result.started] == ["a-1"]
    assert [(each.held_before, each.held_after) for each in result.projects] == [(0, 2000), (4000, 2000)]


def test_departments_hold_the_sum_of_their_projects() -> None:
    snapshot = a_snapshot(B_1)
    department = replace(builders.project("all", 4000), name="all")
    projects = (department, *(replace(each, parent="all") for each in snapshot.projects))
    held = held_gpu_milli(replace(snapshot, projects=projects))
    assert held == {"all": 2000, "team-a": 0, "team-b": 2000}


def test_a_workload_that_starts_and_is_evicted_again_does_not_run_again() -> None:
    """The first decision lends GPUs to b-2, as an older planner did, and the second decision reclaims them."""
    before = one_claim_two_borrowers()
    plans = iter([plan(before, actions={"allocate"})])
    run = settle(before, planner=lambda snapshot: next(plans, None) or plan(snapshot))
    result = outcome(before, run.steps[0], run)
    waiting = {each.name for each in result.waiting}
    assert {each.name: each.runs_again for each in result.evicted} == {"b-2": False, "b-1": False}
    assert waiting == {"b-1", "b-2"}


def test_memory_of_a_gpu_is_counted_wherever_an_amount_is_told() -> None:
    before = on_parts_by_memory()
    result = outcome(before, plan(before), settle(before))
    assert [(each.name, each.gpu_milli) for each in result.started] == [("a-2", 500)]
    assert [(each.name, each.gpu_milli) for each in result.waiting] == [("a-3", 2000), ("a-4", 500)]
    assert [(each.project, each.held_before, each.held_after) for each in result.projects] == [
        ("team-a", 500, 1000)
    ]


def test_lost_memory_of_a_gpu_is_counted() -> None:
    first = on_parts_by_memory().workloads[0]
    second = replace(first, id="a-2", name="a-2", pods=(replace(first.pods[0], id="a-2-0", name="a-2-0"),))
    owner = builders.workload("b-1", "team-b", 1000, age=7)
    projects = (builders.project("team-a", 0, over_quota_weight=1), builders.project("team-b", 1000))
    before = replace(on_parts_by_memory(), projects=projects, workloads=(first, second, owner))
    result = outcome(before, plan(before), settle(before))
    assert {each.name: each.gpu_milli for each in result.evicted} == {"a-1": 500, "a-2": 500}
