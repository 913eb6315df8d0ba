"""Obeying plans, changing snapshots, and saying what is different: the pure parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.planner import model, plan
from orchestrator.simulation import change
from orchestrator.simulation.apply_plan import (
    Departures,
    after_decision,
    apply_plan,
    moment_after,
    successor,
)
from orchestrator.simulation.diagnosis import diagnose
from orchestrator.simulation.outcome import held_gpu_milli, outcome
from orchestrator.simulation.run import decide_once, settle
from orchestrator.workloads.submission import Submission
from tests.planner import builders


def a_snapshot(*workloads: model.Workload, gpus: int = 4) -> model.Snapshot:
    projects = (builders.project("team-a", 2000), builders.project("team-b", 2000))
    return model.Snapshot((builders.node("dgx1-1", gpus),), projects, workloads)


def running(name: str, project: str, gpus: int, devices: tuple[int, ...], **changes: Any) -> model.Workload:
    made = builders.workload(name, project, gpus * 1000)
    pod = replace(made.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=devices)
    return replace(made, pods=(pod,), **({"started_at_us": 5} | changes))


def state(workload: model.Workload) -> list[str]:
    return [pod.state.value for pod in workload.pods]


def asking(name: str, **values: Any) -> Submission:
    return Submission(name=name, image="image", user="me", **values)


B_1 = running("b-1", "team-b", 2, (0, 1), created_at_us=1)
B_2 = running("b-2", "team-b", 2, (2, 3), created_at_us=2)
A_1 = builders.workload("a-1", "team-a", 2000, age=7)


def test_a_bound_pod_runs_and_is_younger_than_all_that_ran_before() -> None:
    before = a_snapshot(B_1, A_1)
    after = after_decision(before, plan(before))
    started = after.workloads[1]
    assert state(started) == ["allocated"]
    assert (started.pods[0].node, started.pods[0].devices) == ("dgx1-1", (2, 3))
    assert started.started_at_us == moment_after(before) == 8
    assert after.workloads[0] is before.workloads[0]


def test_an_evicted_pod_waits_again_in_its_old_place() -> None:
    run = decide_once(a_snapshot(B_1, B_2, A_1))
    loser = run.after.workloads[1]
    assert (state(loser), loser.created_at_us, loser.started_at_us) == (["pending"], 2, 0)
    assert (loser.pods[0].node, loser.pods[0].devices) == (None, ())
    assert not run.is_stable


def test_a_workload_that_grows_keeps_its_start() -> None:
    elastic = builders.workload("b-1", "team-b", 1000, pods=2)
    first = replace(elastic.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=(0,))
    before = a_snapshot(replace(elastic, pods=(first, elastic.pods[1]), started_at_us=5))
    (grown,) = after_decision(before, plan(before)).workloads
    assert (state(grown), grown.started_at_us) == (["allocated", "allocated"], 5)


def test_settling_goes_on_until_a_decision_changes_nothing() -> None:
    run = settle(a_snapshot(B_1, B_2, A_1))
    assert (len(run.steps), run.is_stable) == (2, True)
    assert held_gpu_milli(run.after) == {"team-a": 2000, "team-b": 2000}
    assert settle(run.after).steps == ()
    assert decide_once(run.after).after is run.after


def test_a_planner_that_never_comes_to_rest_is_cut_off() -> None:
    def restless(snapshot: model.Snapshot) -> model.Plan:
        pod = snapshot.workloads[0].pods[0]
        if pod.state is model.PodState.PENDING:
            return model.Plan((model.Binding(pod.id, "b-1", "dgx1-1", (0, 1)),), (), {}, {}, {})
        return model.Plan((), (model.Eviction(pod.id, "b-1", "b-1", "whim", ""),), {}, {}, {})

    run = settle(a_snapshot(B_1), max_decisions=7, planner=restless)
    assert (len(run.steps), run.is_stable) == (7, False)


def test_pods_on_their_way_out_are_gone_first_and_others_wait_in_their_place() -> None:
    leaving = replace(B_1, pods=(replace(B_1.pods[0], state=model.PodState.RELEASING),))
    run = settle(a_snapshot(leaving, gpus=2))
    assert (run.is_stable, state(run.after.workloads[0])) == (True, ["allocated"])
    assert [pod.id for pod in run.after.workloads[0].pods] == ["b-1-0+1"]


def evicting(pod: model.Pod, room: str | None = None) -> model.Plan:
    kept = () if room is None else (model.Binding(pod.id, "b-1", room, (2, 3)),)
    return model.Plan((), (model.Eviction(pod.id, "b-1", "a-1", "quota", ""),), {}, {}, {}, nominations=kept)


NOTHING = model.Plan((), (), {}, {}, {})


@pytest.mark.parametrize(
    ("grace", "late", "expected"),
    [
        (0, False, [["pending"]] * 3),
        (0, True, [["pending"]] * 3),
        (1, False, [["releasing", "pending"], ["pending"], ["pending"]]),
        (1, True, [["releasing"], ["pending"], ["pending"]]),
        (2, False, [["releasing", "pending"], ["releasing", "pending"], ["pending"]]),
        (2, True, [["releasing"], ["releasing"], ["pending"]]),
    ],
)
def test_an_evicted_pod_goes_after_its_grace_and_its_successor_comes_at_once_or_late(
    grace: int, late: bool, expected: list[list[str]]
) -> None:
    cluster = Departures(a_snapshot(B_1), lambda _: grace, lambda _: late)
    states = []
    for decision in (evicting(B_1.pods[0]), NOTHING, NOTHING):
        cluster.carry_out(decision)
        states.append(state(cluster.snapshot.workloads[0]))
    assert states == expected
    assert cluster.is_quiet
    (pod,) = cluster.snapshot.workloads[0].pods
    assert (pod.id, pod.name, pod.node, pod.devices) == ("b-1-0+1", "b-1-0", None, ())
    assert successor(pod).id == "b-1-0+2"


@pytest.mark.parametrize("late", [False, True])
def test_the_room_of_an_evicted_pod_is_its_successors(late: bool) -> None:
    cluster = Departures(a_snapshot(B_1), lambda _: 1, lambda _: late)
    plan_with_room = evicting(B_1.pods[0], "dgx1-1")
    cluster.carry_out(plan_with_room)
    rooms = [(pod.nominated_node, pod.nominated_devices) for pod in cluster.snapshot.workloads[0].pods]
    assert rooms == [("dgx1-1", (2, 3)), (None, ())][: len(rooms)]
    cluster.carry_out(replace(NOTHING, nominations=plan_with_room.nominations))
    (pod,) = cluster.snapshot.workloads[0].pods
    assert (pod.state.value, pod.nominated_node, pod.nominated_devices) == ("pending", "dgx1-1", (2, 3))
    cluster.carry_out(NOTHING)
    assert cluster.snapshot.workloads[0].pods[0].nominated_node is None


def test_what_a_decision_did_not_reach_is_in_the_next_snapshot() -> None:
    after = apply_plan(a_snapshot(B_1), replace(NOTHING, left_over=("b-1",)))
    assert after.left_over == ("b-1",)
    assert apply_plan(after, replace(NOTHING, left_over=("b-1",))) is after


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


def test_a_submission_becomes_the_workload_that_the_operator_would_read() -> None:
    asked = asking("gang", gpu_milli=1000, parallelism=3, completions=3, min_member=3, node_type="dgx1")
    workload = change.submit(a_snapshot(B_1), asked, "team-a").workloads[-1]
    assert (workload.id, workload.project, workload.priority) == ("team-a/gang", "team-a", 50)
    assert (workload.preemptible, workload.min_member, len(workload.pods)) == (True, 3, 3)
    assert workload.created_at_us == moment_after(a_snapshot(B_1))
    assert {pod.request for pod in workload.pods} == {
        model.Request(gpu_count=1, cpu_milli=1000, memory_bytes=100 << 20)
    }
    assert workload.pods[0].constraints.node_selector == (("run.ai/type", "dgx1"),)


def test_an_interactive_submission_of_a_part_of_a_gpu_is_read_like_a_real_one() -> None:
    asked = asking("note", gpu_milli=500, interactive=True)
    workload = change.submit(a_snapshot(), asked, "team-a").workloads[-1]
    assert (workload.interactive, workload.preemptible, workload.priority) == (True, False, 100)
    assert workload.pods[0].request.gpu_portion_milli == 500


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (lambda it: change.submit(it, asking("b-1"), "team-b"), "has a workload b-1 already"),
        (lambda it: change.submit(it, asking("x"), "team-x"), "there is no project team-x"),
        (lambda it: change.delete(it, "team-b", "b-9"), "has no workload b-9"),
        (lambda it: change.delete(it, "team-a", "b-1"), "has no workload b-1"),
        (lambda it: change.set_quota(it, "team-b", 2001), "the quotas add up to 4.001 GPUs"),
    ],
)
def test_what_a_real_cluster_would_refuse_is_refused(action: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        action(a_snapshot(B_1))


def test_a_weight_that_was_the_quota_follows_it_and_another_stays() -> None:
    snapshot = a_snapshot()
    first = replace(snapshot.projects[0], over_quota_weight=7)
    snapshot = replace(snapshot, projects=(first, snapshot.projects[1]))
    changed = change.set_quota(change.set_quota(snapshot, "team-a", 1000), "team-b", 500)
    assert [(each.quota_gpu_milli, each.over_quota_weight) for each in changed.projects] == [
        (1000, 7),
        (500, 500),
    ]


def test_an_explanation_of_what_starts_now_names_no_remedy() -> None:
    snapshot = a_snapshot(B_1, A_1)
    told = diagnose(snapshot, A_1)
    assert [place.node for place in told.starts] == ["dgx1-1"]
    assert (told.code, told.remedies, told.free_gpu_milli) == ("", (), 2000)


def test_an_explanation_says_whom_the_next_decision_evicts_for_it() -> None:
    told = diagnose(a_snapshot(B_1, B_2, A_1), A_1)
    assert [each.workload for each in told.evicts] == ["b-2"]
    assert [(each.name, each.gpu_milli) for each in told.holders] == [("b-1", 2000), ("b-2", 2000)]


def test_a_remedy_is_named_only_when_the_workload_then_runs() -> None:
    large = builders.workload("large", "team-a", 3000, age=9)
    told = diagnose(a_snapshot(B_1, B_2, large), large)
    (remedy,) = told.remedies
    assert (remedy.what, remedy.evicts) == ("if it asked for 2 GPUs", ("team-b/b-2",))
    hopeless = builders.workload(
        "hopeless", "team-a", 3000, constraints=model.Constraints((("no", "where"),))
    )
    assert diagnose(a_snapshot(hopeless), hopeless).remedies == ()


@pytest.mark.parametrize(
    ("limits", "remedies"),
    [
        ((2000, None), {"with a limit of 3 GPUs for team-a"}),
        ((None, 2000), {"with a limit of 3 GPUs for all"}),
        ((2000, 2000), set()),
        ((3000, 3000), set()),
    ],
)
def test_a_higher_limit_is_named_where_it_lets_the_workload_run(
    limits: tuple[int | None, int | None], remedies: set[str]
) -> None:
    projects = (
        builders.project("all", 4000, limit_gpu_milli=limits[1]),
        builders.project("team-a", 4000, limit_gpu_milli=limits[0], parent="all"),
    )
    large = builders.workload("large", "team-a", 3000)
    told = diagnose(model.Snapshot((builders.node("dgx1-1", 4),), projects, (large,)), large)
    assert {remedy.what for remedy in told.remedies if "limit" in remedy.what} == remedies


def test_work_that_may_not_be_evicted_is_told_that_it_could_be() -> None:
    firm = builders.workload("firm", "team-a", 3000, age=9, interactive=True)
    told = diagnose(a_snapshot(firm), firm)
    assert told.code == "NonPreemptibleOverQuota"
    assert "as a preemptible job, which others may take GPUs from" in {each.what for each in told.remedies}
