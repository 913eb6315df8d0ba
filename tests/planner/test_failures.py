"""Avoided nodes and backoff of workloads after failures, and their duration: tables of single decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.planner import Planner, plan
from orchestrator.planner.model import (
    SECOND_US,
    FailureKind,
    Node,
    Plan,
    Pod,
    PodState,
    Rejection,
    Snapshot,
    Waiting,
    Workload,
)
from orchestrator.planner.settings import Settings
from tests.planner.builders import node, project, workload

NOW_US = 1_000_000 * SECOND_US
JOB = workload("job", "a", 1000)
OTHER = workload("other", "a", 1000, age=1)


def failed(
    place: str = "n1",
    of: str = "job",
    ago: float = 1,
    kind: FailureKind = FailureKind.REJECTED,
    *,
    node_recovered: bool = False,
    workload_recovered: bool = False,
) -> Rejection:
    at_us = NOW_US - int(ago * SECOND_US) if ago else 0
    return Rejection(place, of, f"{of}-x", "why", kind, at_us, node_recovered, workload_recovered)


def runtime(of: str, ago: float) -> Rejection:
    return replace(failed("n1", of, ago), reason="StartError")


def refused(ago: float = 1, of: str = "job") -> Rejection:
    return failed("n1", of, ago, FailureKind.REFUSED)


def timed_out(ago: float = 1, of: str = "job") -> Rejection:
    return failed("n1", of, ago, FailureKind.NOT_STARTED)


def decide(*rejections: Rejection, workloads: tuple[Workload, ...] = (JOB,), now_us: int = NOW_US) -> Plan:
    snapshot = Snapshot(
        (node("n1"), node("n2")),
        (project("a", 16_000),),
        workloads,
        now_us=now_us,
        rejections=tuple(sorted(rejections, key=lambda each: each.at_us)),
    )
    decision = plan(snapshot)
    assert Planner().plan(snapshot) == decision
    return decision


@pytest.mark.parametrize(
    ("rejections", "places"),
    [
        ((), {"job-0": "n1", "other-0": "n1"}),
        ((failed(),), {"job-0": "n1", "other-0": "n1"}),
        ((failed(ago=9.5), failed(ago=9)), {"job-0": "n2", "other-0": "n2"}),
        ((failed(ago=11), failed(ago=10)), {"job-0": "n1", "other-0": "n1"}),
        ((failed(ago=30), failed(ago=20), failed(ago=19, of="x")), {"job-0": "n2", "other-0": "n2"}),
        ((failed(ago=30), failed(ago=25), failed(ago=20, of="x")), {"job-0": "n1", "other-0": "n1"}),
        ((failed(of="x"), failed(of="y")), {"job-0": "n2", "other-0": "n2"}),
        ((failed(of="x", node_recovered=True), failed(of="y")), {"job-0": "n1", "other-0": "n1"}),
        ((failed(node_recovered=True), failed(node_recovered=True)), {"job-0": "n2", "other-0": "n1"}),
        ((failed(), failed(), failed("n2", ago=30)), {"other-0": "n1"}),
        ((failed(), failed(of="y"), failed("n2", ago=30)), {"job-0": "n2", "other-0": "n2"}),
        (
            (failed(workload_recovered=True), failed(workload_recovered=True)),
            {"job-0": "n2", "other-0": "n2"},
        ),
        ((failed(ago=0), failed(ago=0)), {"job-0": "n2", "other-0": "n2"}),
        ((failed("gone"), failed("gone")), {"job-0": "n1", "other-0": "n1"}),
        ((timed_out(of="x"), timed_out(of="y")), {"job-0": "n1", "other-0": "n1"}),
        ((refused(of="x"), refused(of="y")), {"job-0": "n1", "other-0": "n1"}),
        (tuple(runtime(each, ago=9) for each in "pqrstu"), {"job-0": "n2", "other-0": "n2"}),
        (tuple(runtime(each, ago=10) for each in "pqrstu"), {"job-0": "n1", "other-0": "n1"}),
        (
            (*(runtime(each, ago=12) for each in "pq"), failed(ago=12, of="x")),
            {"job-0": "n1", "other-0": "n1"},
        ),
    ],
)
def test_a_node_with_two_failures_in_a_row_is_avoided_for_a_time_that_doubles(
    rejections: tuple[Rejection, ...], places: dict[str, str]
) -> None:
    decisions = [decide(*rejections, workloads=(each,)) for each in (JOB, OTHER)]
    assert {each.pod: each.node for decision in decisions for each in decision.bindings} == places


@pytest.mark.parametrize(
    ("rejections", "is_put_off"),
    [
        ((refused(9),), True),
        ((refused(10),), False),
        ((refused(40), refused(19)), True),
        ((refused(40), refused(20)), False),
        ((refused(90), refused(60), refused(39)), True),
        ((refused(9), refused(8.9), refused(8.8)), True),
        ((refused(11), refused(10.5), refused(10)), False),
        ((refused(100), *(refused(each * 100) for each in range(2, 20))), True),
        (tuple(refused(each * 1000) for each in range(1, 30)), False),
        ((replace(refused(), workload_recovered=True),), False),
        ((timed_out(299),), True),
        ((timed_out(300),), False),
        ((timed_out(3000), timed_out(599)), True),
        ((refused(of="x"), timed_out(of="x")), False),
        ((failed("n3", ago=3), failed("n4", ago=2)), False),
        ((failed("n3", ago=3), failed("n4", ago=2), failed("n5", ago=1)), True),
        ((failed("n3", ago=13), failed("n4", ago=12), failed("n5", ago=10)), False),
    ],
)
def test_a_workload_is_put_off_for_a_time_that_doubles(
    rejections: tuple[Rejection, ...], is_put_off: bool
) -> None:
    decision = decide(*rejections)
    assert ("job" in decision.pending) is is_put_off
    assert [binding.pod for binding in decision.bindings] == ([] if is_put_off else ["job-0"])
    if is_put_off:
        assert decision.pending["job"].code is Waiting.BACK_OFF
        assert "it is tried again in " in decision.pending["job"].message


def test_without_a_time_nodes_are_avoided_and_no_workload_is_put_off() -> None:
    decision = decide(failed(), failed(), refused(), now_us=0)
    assert [(binding.pod, binding.node) for binding in decision.bindings] == [("job-0", "n2")]


def test_the_pods_of_a_gang_that_fail_together_are_one_attempt() -> None:
    gang = workload("job", "a", 1000, pods=8, gang=True)
    together = [failed(of="job", ago=11) for _ in range(8)]
    assert len(decide(*together, workloads=(gang,)).bindings) == 8
    thrice = [failed(each, ago=5) for each in ("n3", "n4", "n5") for _ in range(8)]
    assert decide(*thrice, workloads=(gang,)).pending["job"].code is Waiting.BACK_OFF


def sick(number: int, since: int = 0) -> Node:
    return node(f"n{number:02d}", host_fault=f"memory error on {number}", host_fault_since_us=since or number)


def test_a_host_with_a_fault_gets_no_new_pod_and_keeps_those_that_it_has() -> None:
    old = workload("old", "a", 1000, age=1)
    (pod,) = old.pods
    running = old.with_pods((replace(pod, state=PodState.ALLOCATED, node="n01", devices=(0,)),))
    for now_us in (0, NOW_US):
        snapshot = Snapshot((sick(1), node("n02")), (project("a", 16_000),), (running, JOB), now_us=now_us)
        decision = plan(snapshot)
        assert [(each.pod, each.node) for each in decision.bindings] == [("job-0", "n02")]
        assert decision.evictions == ()


def test_a_workload_that_fits_only_on_a_host_with_a_fault_names_the_fault() -> None:
    large = workload("large", "a", 8000, pods=2, gang=True)
    snapshot = Snapshot((sick(1), node("n02")), (project("a", 16_000),), (large,))
    decision = plan(snapshot)
    why = "node n01 is avoided: it reports a host fault: memory error on 1"
    assert decision.avoided == {"n01": why}
    assert decision.pending["large"].message.endswith(why)
    alone = plan(replace(snapshot, nodes=(sick(1),), workloads=(JOB,)))
    assert (alone.pending["job"].code, alone.pending["job"].message) == (Waiting.AVOIDED, why)


@pytest.mark.parametrize(
    ("nodes", "most", "avoided"),
    [
        (20, None, {"n18", "n17"}),
        (9, None, {"n07"}),
        (20, 3, {"n18", "n17", "n16"}),
        (20, 0, set()),
    ],
)
def test_faults_that_many_hosts_share_close_at_most_a_tenth_of_the_nodes_the_oldest_first(
    nodes: int, most: int | None, avoided: set[str]
) -> None:
    hosts = tuple(sick(number, since=100 - number) for number in range(nodes - 1))
    settings = Settings(max_unhealthy_nodes=most)
    snapshot = Snapshot((*hosts, node("good")), (project("a", 16_000),), (), settings=settings)
    assert plan(snapshot).avoided.keys() == avoided


def test_the_plan_names_avoided_nodes_and_reasons_name_them_too() -> None:
    large = workload("large", "a", 8000)
    full = running(workload("full", "a", 1000), "n2")
    decision = decide(failed(of="x"), failed(of="y"), workloads=(full, large))
    assert list(decision.avoided) == ["n1"]
    assert "2 pods in a row failed there" in decision.avoided["n1"]
    assert "node n1 is avoided" in decision.pending["large"].message


def running(new: Workload, place: str, first: int = 0, **changes: object) -> Workload:
    pods = []
    for pod in new.pods:
        devices = tuple(range(first, first + pod.request.gpu_count))
        first += len(devices)
        pods.append(replace(pod.placed(PodState.ALLOCATED, place, devices), **changes))  # type: ignore[arg-type]
    return replace(new, pods=tuple(pods), started_at_us=1)


def unstarted(name: str, seconds: int, *, cannot_start: bool = False, **changes: object) -> Workload:
    new = workload(name, "a", 1000, **changes)  # type: ignore[arg-type]
    bound_at_us = NOW_US - seconds * SECOND_US if seconds else 0
    return running(new, "n1", never_started=True, bound_at_us=bound_at_us, cannot_start=cannot_start)


@pytest.mark.parametrize(
    ("one", "timeout_seconds", "evicted"),
    [
        (unstarted("w", 1799), 1800, []),
        (unstarted("w", 1800), 1800, ["w-0"]),
        (unstarted("w", 0), 1800, []),
        (unstarted("w", 119, cannot_start=True), 1800, []),
        (unstarted("w", 120, cannot_start=True), 1800, ["w-0"]),
        (unstarted("w", 60, cannot_start=True), 60, ["w-0"]),
        (unstarted("w", 99_999, cannot_start=True), None, []),
        (unstarted("w", 1800, interactive=True), 1800, ["w-0"]),
        (unstarted("w", 1800, pods=2, gang=True), 1800, ["w-0", "w-1"]),
        (running(workload("w", "a", 1000), "n1", bound_at_us=1), 1800, []),
    ],
)
def test_a_pod_that_does_not_start_in_time_is_evicted(
    one: Workload, timeout_seconds: int | None, evicted: list[str]
) -> None:
    settings = Settings(start_timeout_seconds=timeout_seconds)
    snapshot = Snapshot((node("n1"),), (project("a", 8000),), (one,), now_us=NOW_US, settings=settings)
    assert [each.pod for each in plan(snapshot).evictions] == evicted
    assert {each.rule for each in plan(snapshot).evictions} <= {"start-timeout"}


def test_a_gang_is_evicted_with_its_late_pod_and_an_elastic_pod_alone() -> None:
    pods = workload("w", "a", 1000, pods=3, minimum=2)
    late = unstarted("late", 1800).pods[0]

    def with_late(minimum: int) -> Workload:
        ran = running(pods, "n1")
        mixed: tuple[Pod, ...] = (*ran.pods[:2], replace(late, id="w-2", name="w-2", devices=(2,)))
        return replace(ran, pods=mixed, min_member=minimum)

    for minimum, evicted in ((2, ["w-2"]), (3, ["w-0", "w-1", "w-2"])):
        snapshot = Snapshot((node("n1"),), (project("a", 8000),), (with_late(minimum),), now_us=NOW_US)
        assert sorted(each.pod for each in plan(snapshot).evictions) == evicted


@pytest.mark.parametrize("unstarted_first", [True, False])
def test_a_pod_that_has_not_started_is_evicted_before_one_that_runs(unstarted_first: bool) -> None:
    """Neither age, priority, project nor size protects the pod that has not started."""
    broken = running(workload("broken", "b", 4000, priority=90), "n1", never_started=True)
    good = running(workload("good", "c", 2000, age=5), "n1", first=4)
    want = workload("want", "a", 2000, age=9)
    if not unstarted_first:
        broken = replace(broken, pods=tuple(replace(pod, never_started=False) for pod in broken.pods))
    snapshot = Snapshot(
        (node("n1", 6),), (project("a", 4000), project("b", 0), project("c", 0)), (broken, good, want)
    )
    evicted = [each.workload for each in plan(snapshot).evictions]
    assert evicted == (["broken"] if unstarted_first else ["good"])
