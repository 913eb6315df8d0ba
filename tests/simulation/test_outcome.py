"""What differs between two states of a cluster."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.planner import plan
from orchestrator.simulation.outcome import held_gpu_milli, outcome
from orchestrator.simulation.run import settle
from tests.planner import builders
from tests.simulation.clusters import A_1, B_1, B_2, a_snapshot


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


def test_departments_hold_what_their_projects_hold() -> None:
    snapshot = a_snapshot(B_1)
    department = replace(builders.project("all", 4000), name="all")
    projects = (department, *(replace(each, parent="all") for each in snapshot.projects))
    held = held_gpu_milli(replace(snapshot, projects=projects))
    assert held == {"all": 2000, "team-a": 0, "team-b": 2000}
