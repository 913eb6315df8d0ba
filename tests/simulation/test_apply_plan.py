"""Applying a plan to a snapshot: bindings, evictions, successors, nominations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.planner import model, plan
from orchestrator.simulation.apply_plan import Departures, after_decision, apply_plan, moment_after, successor
from tests.planner import builders
from tests.simulation.clusters import A_1, B_1, a_snapshot, state


def test_a_bound_pod_runs_and_is_younger_than_all_that_ran_before() -> None:
    before = a_snapshot(B_1, A_1)
    after = after_decision(before, plan(before))
    started = after.workloads[1]
    assert state(started) == ["allocated"]
    assert (started.pods[0].node, started.pods[0].devices) == ("dgx1-1", (2, 3))
    assert started.started_at_us == moment_after(before) == 8
    assert after.workloads[0] is before.workloads[0]


def test_a_workload_that_grows_keeps_its_start() -> None:
    elastic = builders.workload("b-1", "team-b", 1000, pods=2)
    first = replace(elastic.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=(0,))
    before = a_snapshot(replace(elastic, pods=(first, elastic.pods[1]), started_at_us=5))
    (grown,) = after_decision(before, plan(before)).workloads
    assert (state(grown), grown.started_at_us) == (["allocated", "allocated"], 5)


@pytest.mark.parametrize(("minimum", "stale_since_us"), [(2, 0), (3, 7)])
def test_a_gang_that_is_whole_again_is_not_stale(minimum: int, stale_since_us: int) -> None:
    gang = builders.workload("b-1", "team-b", 1000, pods=2, minimum=minimum)
    first = replace(gang.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=(0,))
    before = a_snapshot(replace(gang, pods=(first, gang.pods[1]), started_at_us=5, stale_since_us=7))
    bound = model.Plan((model.Binding(gang.pods[1].id, "b-1", "dgx1-1", (1,)),), (), {}, {}, {})
    assert after_decision(before, bound).workloads[0].stale_since_us == stale_since_us


def evicting(pod: model.Pod, node: str | None = None) -> model.Plan:
    nominations = () if node is None else (model.Binding(pod.id, "b-1", node, (2, 3)),)
    return model.Plan(
        (), (model.Eviction(pod.id, "b-1", "a-1", "quota", ""),), {}, {}, {}, nominations=nominations
    )


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
def test_an_evicted_pod_ends_after_its_grace_and_its_successor_comes_at_once_or_late(
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


def test_a_terminating_pod_whose_successor_was_replaced_too_gets_no_second_successor() -> None:
    (pod,) = B_1.pods
    terminating = [
        replace(each, state=model.PodState.RELEASING, replaced=True) for each in (pod, successor(pod))
    ]
    pods = (*(replace(each, node="dgx1-1") for each in terminating), successor(terminating[1]))
    cluster = Departures(a_snapshot(replace(B_1, pods=pods)), lambda _: 1)
    cluster.carry_out(NOTHING)
    assert [each.id for each in cluster.snapshot.workloads[0].pods] == ["b-1-0+2"]


@pytest.mark.parametrize("late", [False, True])
def test_the_nomination_of_an_evicted_pod_passes_to_its_successor(late: bool) -> None:
    cluster = Departures(a_snapshot(B_1), lambda _: 1, lambda _: late)
    nominating_plan = evicting(B_1.pods[0], "dgx1-1")
    cluster.carry_out(nominating_plan)
    nominations = [(pod.nominated_node, pod.nominated_devices) for pod in cluster.snapshot.workloads[0].pods]
    assert nominations == [("dgx1-1", (2, 3)), (None, ())][: len(nominations)]
    cluster.carry_out(replace(NOTHING, nominations=nominating_plan.nominations))
    (pod,) = cluster.snapshot.workloads[0].pods
    assert (pod.state.value, pod.nominated_node, pod.nominated_devices) == ("pending", "dgx1-1", (2, 3))
    cluster.carry_out(NOTHING)
    assert cluster.snapshot.workloads[0].pods[0].nominated_node is None


def test_workloads_that_a_decision_did_not_reach_are_in_the_next_snapshot() -> None:
    after = apply_plan(a_snapshot(B_1), replace(NOTHING, left_over=("b-1",)))
    assert after.left_over == ("b-1",)
    assert apply_plan(after, replace(NOTHING, left_over=("b-1",))) is after


@pytest.mark.parametrize(
    ("before", "now", "is_changed"), [(("b-1",), (), False), ((), ("b-1",), True), ((), (), False)]
)
def test_left_over_workloads_make_a_difference_and_served_ones_make_none(
    before: tuple[str, ...], now: tuple[str, ...], is_changed: bool
) -> None:
    cluster = Departures(replace(a_snapshot(B_1, A_1), left_over=before), lambda _: 0)
    assert cluster.carry_out(replace(NOTHING, left_over=now)) is is_changed
    assert cluster.snapshot.left_over == now
