"""The comparison of an expectation with the state, as data and as sentences."""

from typing import Any

from tests.validation.judge.events import CLUSTER, delete, pod
from validation.judge.events import CommandRun, Event
from validation.judge.scheduling.expectation import Expectation, contradictions, differences, observe
from validation.judge.scheduling.oracle import Demand, Project, divide
from validation.judge.state import fold


def expect(p: int = 0, running: int = 0, **more: Any) -> Expectation:
    """Return an expectation of `p` thousandths of a GPU for project p, and none for q."""
    return Expectation(**{"allocated_milli": {"p": p, "q": 0}, "total_milli": p, "running": running, **more})


def wrong(expected: Expectation, *events: Event, evicted: tuple[str, ...] = ()) -> list[str]:
    return differences(expected, observe(fold([*CLUSTER, *events]), evicted, ["p", "q"]))


SUBMIT = CommandRun(1, "submit", "p", ("a",))
RUNNING = pod(2, "a")
WAITING = pod(2, "a", node="", phase="Pending", devices=())


def test_an_allocation_that_differs_is_named_by_project() -> None:
    assert wrong(expect(2000, running=2), RUNNING) == [
        "p: expected 2 GPUs, has 1",
        "total: expected 2, is 1",
        "running workloads: expected 2, are 1",
    ]


def test_the_queue_is_compared_by_name() -> None:
    assert wrong(expect(pending=("b",)), SUBMIT, WAITING) == [
        "not pending but should be: b",
        "pending but should not be: a",
    ]
    assert not wrong(expect(pending=("a",)), SUBMIT, WAITING)


def test_a_workload_without_a_pod_is_not_settled() -> None:
    assert wrong(expect(pending=("a",)), SUBMIT) == ["not settled: a"]


def test_a_bound_pod_that_has_not_started_is_not_settled() -> None:
    assert wrong(expect(1000), SUBMIT, pod(2, "a", phase="Pending")) == ["not settled: a"]


def test_a_deleted_workload_is_not_waited_for() -> None:
    assert not wrong(expect(), SUBMIT, delete(3, "a"))


def test_unexpected_evictions_are_a_difference() -> None:
    assert wrong(expect(), evicted=("a",)) == ["evicted but should not be: a"]
    assert wrong(expect(evicted=("a", "b")), evicted=("a",)) == ["not evicted but should be: b"]


def test_one_of_several_expected_states_is_enough_and_a_mixture_of_them_is_none() -> None:
    paused = expect(pending=("a",), evicted=("a",))
    either = expect(1000, running=1, or_else=(paused,))
    assert either.may_be_evicted == {"a"}
    assert not wrong(either, RUNNING)
    assert not wrong(either, SUBMIT, WAITING, evicted=("a",))
    assert wrong(either, RUNNING, evicted=("a",)) == ["evicted but should not be: a"]
    assert wrong(either, SUBMIT, WAITING) == ["not evicted but should be: a"]


def test_the_oracle_need_agree_with_one_of_several_states() -> None:
    demands = [Demand("p", "a", 1000, preemptible=True, priority=0, pods=1, min_member=1)]
    division = divide(2000, [Project("p", 2000), Project("q", 0)], demands)
    paused = expect(pending=("a",))
    assert contradictions(paused, division)
    assert not contradictions(expect(pending=("a",), or_else=(expect(1000, running=1),)), division)
    assert contradictions(expect(pending=("a",), or_else=(expect(2000, running=1),)), division)


def test_sharing_a_gpu_means_one_and_the_same_device_of_one_node() -> None:
    first = pod(1, "a", gpu_milli=500)
    together = pod(2, "b", gpu_milli=500)
    apart = pod(2, "b", gpu_milli=500, node="n2")
    expected = expect(1000, running=2, same_gpu=(("a", "b"),))
    assert not wrong(expected, first, together)
    assert wrong(expected, first, apart) == ["same GPU: a on n1/0, b on n2/0"]
    assert wrong(expect(500, running=1, same_gpu=(("a", "b"),)), first) == ["same GPU: a on n1/0, b on none"]


def test_devices_in_use_are_counted_once() -> None:
    shared = [pod(1, "a", gpu_milli=500), pod(2, "b", gpu_milli=500)]
    assert not wrong(expect(1000, running=2, gpus_in_use=1), *shared)


def test_a_gang_runs_only_with_all_its_members() -> None:
    members = [pod(n, "g", pod=f"g-{n}", devices=(n,), min_member=2) for n in range(2)]
    assert not wrong(expect(2000, running=1), *members)
    assert wrong(expect(1000, running=1), members[0])


def test_an_expectation_that_the_oracle_contradicts_is_named() -> None:
    division = divide(2000, [Project("p", 1000), Project("q", 1000)], [Demand("p", "a", 1000)])
    assert contradictions(expect(1000, running=1), division) == []
    assert contradictions(expect(1000, running=2, evicted=("a",), gpus_in_use=7), division) == [
        "running workloads: expected 2, are 1"
    ]


def test_a_field_that_is_excused_hides_no_other() -> None:
    division = divide(2000, [Project("p", 1000), Project("q", 1000)], [Demand("p", "a", 1000)])
    starved = expect(0, running=0, pending=("a",))
    assert contradictions(starved, division, ["pending"]) == [
        "p: expected 0 GPUs, has 1",
        "total: expected 0, is 1",
        "running workloads: expected 0, are 1",
    ]
    assert contradictions(starved, division, ["allocated", "total", "running", "pending"]) == []


def test_gpus_that_others_hold_are_a_difference() -> None:
    stranger = pod(1, "x", project="else")
    assert wrong(expect(), stranger) == ["GPUs are held by pods that are not of the scenario: else/x-0"]
