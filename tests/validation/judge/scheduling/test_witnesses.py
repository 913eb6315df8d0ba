"""The scheduler's statements compared with those of the kubelet and the driver."""

import pytest

from tests.validation.judge.events import CLUSTER, gone, pod
from validation.judge.events import Event, GpuSeen, GpusSeen
from validation.judge.scheduling.history import History
from validation.judge.scheduling.invariants import INVARIANTS, SUBJECTS

A = pod(5, "a", gpu_milli=2000, devices=(0, 1))


def kubelet(t_ms: int, node: str = "n1", users: str = "", **given: tuple[int, ...]) -> GpusSeen:
    """Return an event in which the kubelet gave these GPUs to pods of project p; processes of
    pod `users` are on GPU 3.
    """
    gpus = [
        GpuSeen(
            index,
            tuple(f"muster-p/{name}-0" for name, indices in given.items() if index in indices),
            (f"uid-{users}",) if users and index == 3 else (),
        )
        for index in range(8)
    ]
    return GpusSeen(t_ms, node, "2026-01-01T00:00:00Z", tuple(gpus))


def judged(name: str, *events: Event, since_ms: int = 0) -> tuple[list[str], int]:
    history = History([*CLUSTER, *events], 10_000, since_ms=since_ms)
    return [one.message for one in INVARIANTS[name](history)], SUBJECTS[name][1](history)


def test_a_kubelet_that_gave_the_same_gpus_confirms_them() -> None:
    assert judged("kubelet-agrees", A, kubelet(6, a=(0, 1))) == ([], 1)


def test_swapped_devices_are_named_with_the_kubelet_that_says_otherwise() -> None:
    message = "the kubelet of n1 gave pod p/a-0 GPUs 6, 7, not GPUs 0, 1 as the scheduler says"
    assert judged("kubelet-agrees", A, kubelet(6, a=(6, 7))) == ([message], 1)
    assert judged("kubelet-agrees", A, kubelet(6, a=(6, 7)), gone(A, 5007)) == ([message], 1), (
        "also when it is gone"
    )


def test_an_annotation_after_the_choice_of_the_kubelet_is_in_time_within_seconds() -> None:
    """A device plugin chooses a pod's GPUs after the scheduler has counted them, so the annotation follows seconds
    later.
    """
    corrected = pod(5006, "a", gpu_milli=2000, devices=(6, 7))
    assert judged("kubelet-agrees", A, kubelet(6, a=(6, 7)), corrected) == ([], 1)
    late = pod(5007, "a", gpu_milli=2000, devices=(6, 7))
    assert judged("kubelet-agrees", A, kubelet(6, a=(6, 7)), late)[0] != []
    on_time = judged("processes-on-own-gpus", A, kubelet(6, users="a"), pod(900, "a", devices=(3,)))
    assert on_time == ([], 1)


def test_a_gpu_that_two_pods_were_counted_on_is_held_by_the_pod_of_the_kubelet() -> None:
    b = pod(7, "b", devices=(0,))
    assert judged("gpu-capacity", A, b)[0] == ["GPU 0 of n1 is held 2 times: p/a-0, p/b-0"]
    assert judged("gpu-capacity", kubelet(1), A, kubelet(6, a=(6, 7)), b) == ([], 2)
    twice = kubelet(8, a=(6, 7), b=(7,))
    assert judged("gpu-capacity", A, kubelet(6, a=(6, 7)), b, twice)[0] == [
        "GPU 7 of n1 is held 2 times: p/a-0, p/b-0"
    ]


def test_an_annotation_that_changes_afterwards_is_noticed() -> None:
    moved = pod(7, "a", gpu_milli=2000, devices=(2, 3))
    lines, _ = judged("kubelet-agrees", A, kubelet(6, a=(0, 1)), moved)
    assert lines == ["the kubelet of n1 gave pod p/a-0 GPUs 0, 1, not GPUs 2, 3 as the scheduler says"]


def test_a_bound_pod_that_does_not_run_is_named() -> None:
    lines, subjects = judged("kubelet-agrees", A, kubelet(6))
    assert lines == [
        "the kubelet of n1 knows of no GPU of pod p/a-0, which runs there on GPUs 0, 1, as the scheduler says"
    ]
    assert subjects == 0


@pytest.mark.parametrize(
    "events",
    [
        (kubelet(6, node="n2"),),
        (kubelet(6), gone(A, 7)),
        (kubelet(6), pod(7, "a", gpu_milli=2000, devices=(0, 1), terminating=True)),
        (kubelet(6), pod(7, "a", gpu_milli=2000, devices=(0, 1), phase="Succeeded")),
        (kubelet(6), GpusSeen(7, "n1", "")),
    ],
    ids=["another node", "gone", "terminating", "finished", "no agent any more"],
)
def test_an_unconfirmed_pod_is_no_violation_and_no_subject(events: tuple[Event, ...]) -> None:
    assert judged("kubelet-agrees", A, *events) == ([], 0)


def test_parts_of_a_gpu_are_not_the_kubelet_s_to_give() -> None:
    part = pod(5, "f", gpu_milli=500)
    assert judged("kubelet-agrees", part, kubelet(6)) == ([], 0)
    assert judged("kubelet-agrees", part, kubelet(6, f=(3,)))[0] != [], "where it does give them, they count"


def test_earlier_reports_of_a_kubelet_are_of_another_pod_of_that_name() -> None:
    assert judged("kubelet-agrees", kubelet(1, a=(6, 7)), A) == ([], 0)
    assert judged("kubelet-agrees", kubelet(1, a=(6, 7)), A, kubelet(6, a=(0, 1))) == ([], 1)


def test_confirmations_before_the_scenario_are_not_its_subject() -> None:
    assert judged("kubelet-agrees", A, kubelet(6, a=(0, 1)), since_ms=7) == ([], 0)


def test_a_process_on_a_gpu_of_another_is_named_with_the_driver() -> None:
    lines, subjects = judged("processes-on-own-gpus", A, kubelet(6, users="a-0"))
    assert (lines, subjects) == ([], 0), "no pod has that uid"
    lines, subjects = judged("processes-on-own-gpus", A, kubelet(6, users="a"))
    assert (lines, subjects) == (
        [
            "the driver of n1 has a process of pod p/a-0 on GPU 3, which holds GPUs 0, 1, as the scheduler says"
        ],
        1,
    )
    own = pod(5, "a", devices=(3,))
    assert judged("processes-on-own-gpus", own, kubelet(6, users="a")) == ([], 1)
