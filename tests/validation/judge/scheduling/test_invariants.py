"""Each invariant detects events that violate it, and accepts the nearest events that do not."""

import pytest
from msgspec.structs import replace

from tests.validation.judge.events import CLUSTER, delete, evicted, gone, pod
from validation.judge.events import Event, NodeSeen
from validation.judge.scheduling.history import History
from validation.judge.scheduling.invariants import INVARIANTS, SUBJECTS


def violations(name: str, *events: Event, end_ms: int = 10_000) -> list[str]:
    return [each.message for each in INVARIANTS[name](History([*CLUSTER, *events], end_ms))]


A8 = pod(1, "a", gpu_milli=8000, devices=tuple(range(8)), project="q")
NOTEBOOK = pod(1, "n", preemptible=False, priority=100)
OLD = pod(1, "old", submitted_us=1, gpu_milli=2000, devices=(0, 1))
NEW = pod(2, "new", submitted_us=2, gpu_milli=2000, devices=(2, 3))


def test_a_node_that_holds_more_than_it_has_is_seen() -> None:
    assert violations("node-capacity", A8, pod(2, "b")) == ["node n1 has 8 GPUs and holds 9"]
    assert not violations("node-capacity", A8)


def test_a_passing_moment_over_capacity_is_seen() -> None:
    assert violations("node-capacity", A8, pod(2, "b"), gone(pod(2, "b"), 3))


def test_a_terminating_pod_still_holds_its_gpus() -> None:
    leaving = pod(2, "a", gpu_milli=8000, devices=tuple(range(8)), terminating=True)
    assert violations("node-capacity", leaving, pod(3, "b"))
    assert not violations("node-capacity", leaving, gone(leaving, 3), pod(4, "b"))


def test_a_node_that_shrinks_under_its_pods_is_seen() -> None:
    assert violations("node-capacity", A8, NodeSeen(2, "n1", 7))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (pod(2, "b"), "GPU 0 of n1 is held 2 times: p/a-0, p/b-0"),
        (pod(2, "b", gpu_milli=500, devices=()), "pod p/b-0 holds 0.5 GPUs but names devices [] of n1"),
        (pod(2, "b", gpu_milli=2000, devices=(1,)), "pod p/b-0 holds 2 GPUs but names devices [1] of n1"),
        (pod(2, "b", devices=(8,)), "pod p/b-0 holds GPU 8 of n1, which has no such GPU"),
    ],
)
def test_a_gpu_given_twice_or_not_named_is_seen(second: Event, message: str) -> None:
    assert violations("gpu-capacity", pod(1, "a"), second) == [message]


def test_shares_of_a_gpu_up_to_one_are_fine_and_beyond_are_not() -> None:
    shares = [pod(n, f"f{n}", gpu_milli=milli) for n, milli in enumerate((500, 300, 200))]
    assert not violations("gpu-capacity", *shares)
    assert violations("gpu-capacity", *shares, pod(4, "f4", gpu_milli=1))


def test_the_eviction_of_in_quota_work_is_seen() -> None:
    (message,) = violations("in-quota-never-evicted", OLD, NEW, evicted(OLD, 3))
    assert message.startswith("workload old of p was evicted inside its quota of 2")


def test_the_eviction_of_borrowed_work_is_lawful_in_any_order_of_the_events() -> None:
    assert not violations("in-quota-never-evicted", OLD, NEW, evicted(NEW, 3))
    assert not violations("in-quota-never-evicted", NEW, OLD, evicted(NEW, 3), gone(evicted(NEW, 3), 4))


def test_interactive_work_makes_older_train_work_borrowed() -> None:
    assert not violations(
        "in-quota-never-evicted", OLD, pod(2, "n", preemptible=False, priority=100), evicted(OLD, 3)
    )


def test_waiting_interactive_work_claims_the_quota_of_its_own_project() -> None:
    waiting = pod(2, "n", preemptible=False, priority=100, node="", phase="Pending", devices=())
    assert not violations("in-quota-never-evicted", OLD, waiting, evicted(OLD, 3))
    train = pod(2, "n", submitted_us=0, node="", phase="Pending", devices=())
    assert violations("in-quota-never-evicted", OLD, train, evicted(OLD, 3))


def test_interactive_work_over_the_quota_is_seen() -> None:
    more = pod(2, "m", preemptible=False, gpu_milli=2000, devices=(1, 2))
    assert violations("interactive-within-quota", NOTEBOOK, more)
    assert not violations("interactive-within-quota", NOTEBOOK, NEW)


def test_an_evicted_interactive_workload_is_seen_once() -> None:
    assert (
        len(violations("interactive-never-evicted", NOTEBOOK, evicted(NOTEBOOK, 2), evicted(NOTEBOOK, 3)))
        == 1
    )
    assert not violations("interactive-never-evicted", OLD, evicted(OLD, 2))


def member(t_ms: int, number: int, **given: object) -> Event:
    return pod(t_ms, "gang", pod=f"gang-{number}", devices=(number,), min_member=3, **given)


def test_a_gang_that_remains_incomplete_is_seen() -> None:
    assert violations("gang-all-or-none", member(1, 0), member(2, 1), end_ms=6000)
    assert not violations("gang-all-or-none", member(1, 0), member(2, 1), end_ms=5000)


def test_gangs_that_are_late_at_once_are_always_named_in_the_same_order() -> None:
    names = [f"gang-{letter}" for letter in "hgfedcba"]
    late = [pod(1, name, devices=(0,), min_member=2) for name in names]
    messages = violations("gang-all-or-none", *late, end_ms=60_000)
    assert [message.split()[1] for message in messages] == sorted(names)


def test_a_gang_may_bind_one_after_the_other_within_the_window() -> None:
    assert not violations("gang-all-or-none", member(1, 0), member(2, 1), member(3, 2), end_ms=60_000)


def test_a_gang_that_was_partial_for_too_long_is_seen_even_if_it_became_whole() -> None:
    assert violations("gang-all-or-none", member(1, 0), member(2, 1), member(9000, 2), end_ms=60_000)


def test_a_gang_that_lost_a_member_is_seen_unless_it_was_deleted() -> None:
    whole = [member(1, 0), member(2, 1), member(3, 2)]
    lost = member(10, 1, terminating=True)
    assert violations("gang-all-or-none", *whole, lost, end_ms=60_000)
    assert not violations("gang-all-or-none", *whole, delete(9, "gang"), lost, end_ms=60_000)


def test_finished_members_count_as_having_run() -> None:
    whole = [member(1, 0), member(2, 1), member(3, 2)]
    assert not violations("gang-all-or-none", *whole, member(10, 1, phase="Succeeded"), end_ms=60_000)


def test_a_pod_that_is_ended_has_not_finished_by_itself() -> None:
    """If a pod is deleted, its kubelet ends it, and its phase is Failed before it disappears."""
    ending = replace(OLD, t_ms=2, terminating=True)
    ended = replace(ending, t_ms=3, phase="Failed")
    assert violations("nothing-vanishes", OLD, ending, ended, gone(ended, 4)) != []
    finished = replace(OLD, t_ms=2, phase="Succeeded")
    assert not violations("nothing-vanishes", OLD, finished, gone(replace(finished, terminating=True), 4))


def test_a_pod_that_vanishes_is_seen() -> None:
    assert violations("nothing-vanishes", OLD, gone(OLD, 2)) == [
        "pod p/old-0 vanished: the API server deleted it, and the scheduler recorded no eviction"
    ]


@pytest.mark.parametrize(
    "events",
    [
        [OLD, evicted(OLD, 2), gone(evicted(OLD, 2), 3)],
        [OLD, delete(2, "old"), gone(OLD, 3)],
        [OLD, pod(2, "old", phase="Succeeded"), gone(pod(2, "old", phase="Succeeded"), 3)],
        [pod(1, "old", node="", phase="Pending"), gone(pod(1, "old", node="", phase="Pending"), 2)],
    ],
)
def test_a_pod_may_go_for_a_reason(events: list[Event]) -> None:
    assert not violations("nothing-vanishes", *events)


def subjects(name: str, *events: Event, since_ms: int = 0) -> int:
    return SUBJECTS[name][1](History([*CLUSTER, *events], 10_000, since_ms=since_ms))


def test_every_invariant_counts_its_subjects() -> None:
    assert SUBJECTS.keys() == INVARIANTS.keys()


@pytest.mark.parametrize("name", INVARIANTS)
def test_an_empty_cluster_is_subject_to_nothing(name: str) -> None:
    assert subjects(name) == 0


@pytest.mark.parametrize(
    ("name", "events", "number"),
    [
        ("node-capacity", [OLD, NEW], 2),
        ("gpu-capacity", [OLD, pod(2, "w", node="", phase="Pending")], 1),
        ("in-quota-never-evicted", [OLD, evicted(OLD, 3), evicted(OLD, 4)], 1),
        ("interactive-within-quota", [OLD, NOTEBOOK], 1),
        ("interactive-never-evicted", [NOTEBOOK], 0),
        ("interactive-never-evicted", [OLD, evicted(OLD, 3)], 0),
        ("interactive-never-evicted", [NOTEBOOK, OLD, evicted(OLD, 3)], 1),
        ("gang-all-or-none", [OLD], 0),
        ("gang-all-or-none", [member(1, 0), member(2, 1)], 1),
        ("nothing-vanishes", [OLD], 0),
        ("nothing-vanishes", [OLD, gone(OLD, 3)], 1),
        ("nothing-vanishes", [gone(pod(1, "w", node="", phase="Pending"), 3)], 0),
    ],
)
def test_the_subjects_of_an_invariant_are_counted(name: str, events: list[Event], number: int) -> None:
    assert subjects(name, *events) == number


def test_events_before_the_scenario_are_no_subject_of_it() -> None:
    assert subjects("nothing-vanishes", OLD, gone(OLD, 3), since_ms=4) == 0
