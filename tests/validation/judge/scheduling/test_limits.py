"""Limits of projects: each invariant detects events that violate it, and accepts the nearest events that do not."""

import pytest
from msgspec.structs import replace

from tests.validation.judge.events import CLUSTER, delete, evicted, gone, pod
from validation.judge.events import Event, NodeSeen, PodSeen, ProjectDeleted, ProjectSet
from validation.judge.scheduling.history import History
from validation.judge.scheduling.invariants import INVARIANTS, SUBJECTS

LIMITED = ProjectSet(0, "p", 2000, interactive_limit_ms=15_000)
FREE = ProjectSet(0, "p", 2000)
NOTEBOOK = pod(1_000, "n", preemptible=False, priority=100)
TRAINING = pod(1_000, "t")
LATE = 1_000 + 15_000 + 20_000


def leaving(event: PodSeen, t_ms: int) -> PodSeen:
    return replace(event, t_ms=t_ms, terminating=True)


def violations(name: str, *events: Event, end_ms: int = 60_000) -> list[str]:
    return [one.message for one in INVARIANTS[name](History([*CLUSTER, *events], end_ms))]


def subjects(name: str, *events: Event, end_ms: int = 60_000, since_ms: int = 0) -> int:
    return SUBJECTS[name][1](History([*CLUSTER, *events], end_ms, since_ms=since_ms))


def test_interactive_work_that_runs_on_is_seen() -> None:
    message = "pod p/n-0 ran for more than 20.0 s longer than the 15.0 s that interactive jobs of p may"
    assert violations("interactive-time-limit", LIMITED, NOTEBOOK) == [message]
    assert violations("interactive-time-limit", LIMITED, NOTEBOOK, leaving(NOTEBOOK, LATE + 1)) == [message]


@pytest.mark.parametrize(
    "events",
    [
        [LIMITED, NOTEBOOK, leaving(NOTEBOOK, LATE)],
        [LIMITED, NOTEBOOK, replace(NOTEBOOK, t_ms=LATE, phase="Succeeded")],
        [LIMITED, NOTEBOOK, gone(NOTEBOOK, 20_000)],
        [LIMITED, TRAINING],
        [FREE, NOTEBOOK],
        [LIMITED, replace(NOTEBOOK, phase="Pending")],
    ],
    ids=["ends", "succeeds", "goes", "training", "without-a-limit", "never-ran"],
)
def test_pods_that_end_or_have_no_limit_may_run(events: list[Event]) -> None:
    assert not violations("interactive-time-limit", *events)


def test_time_counts_from_when_it_runs_not_from_when_it_has_a_node() -> None:
    pulling = replace(NOTEBOOK, phase="Pending")
    assert not violations("interactive-time-limit", LIMITED, pulling, replace(NOTEBOOK, t_ms=30_000))


def test_a_pod_that_reached_its_limit_is_a_subject() -> None:
    assert subjects("interactive-time-limit", LIMITED, NOTEBOOK, end_ms=14_999) == 0
    assert subjects("interactive-time-limit", LIMITED, NOTEBOOK, end_ms=15_000) == 1
    ended: list[Event] = [LIMITED, NOTEBOOK, leaving(NOTEBOOK, 16_000), gone(NOTEBOOK, 17_000)]
    assert subjects("interactive-time-limit", *ended) == 1
    assert subjects("interactive-time-limit", *ended, since_ms=16_001) == 0
    assert subjects("interactive-time-limit", LIMITED, NOTEBOOK, leaving(NOTEBOOK, 14_999)) == 0
    assert subjects("interactive-time-limit", LIMITED, TRAINING) == 0


@pytest.mark.parametrize(
    ("events", "vanished"),
    [
        ([LIMITED, NOTEBOOK, gone(NOTEBOOK, 15_000)], False),
        ([LIMITED, NOTEBOOK, gone(NOTEBOOK, 14_999)], True),
        ([LIMITED, NOTEBOOK, leaving(NOTEBOOK, 14_999), gone(leaving(NOTEBOOK, 0), 40_000)], True),
        ([FREE, NOTEBOOK, gone(NOTEBOOK, 20_000)], True),
        ([LIMITED, TRAINING, gone(TRAINING, 20_000)], True),
    ],
    ids=["in-time", "before-its-time", "began-to-leave-before-its-time", "without-a-limit", "training"],
)
def test_interactive_work_may_go_after_its_time_and_nothing_else_may(
    events: list[Event], vanished: bool
) -> None:
    assert bool(violations("nothing-vanishes", *events)) == vanished


GROUPS: list[Event] = [
    NodeSeen(0, "n1", 8, node_type="green"),
    NodeSeen(0, "n2", 8, node_type="blue"),
    NodeSeen(0, "n3", 8),
    ProjectSet(0, "p", 2000, train_node_types=("blue",), interactive_node_types=("green", "red")),
]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (TRAINING, "pod p/t-0 is on n1 of the group green, and training jobs of p may be on blue"),
        (
            replace(NOTEBOOK, node="n2"),
            "pod p/n-0 is on n2 of the group blue, and interactive jobs of p may be on green, red",
        ),
        (
            replace(TRAINING, node="n3"),
            "pod p/t-0 is on n3 of the group none, and training jobs of p may be on blue",
        ),
        (
            replace(TRAINING, preemptible=False, priority=50),
            "pod p/t-0 is on n1 of the group green, and training jobs of p may be on blue",
        ),
    ],
)
def test_a_pod_on_a_node_that_its_project_may_not_use_is_seen(event: PodSeen, message: str) -> None:
    assert violations("node-affinity", *GROUPS, event) == [message]
    assert violations("node-affinity", *GROUPS, event, gone(event, 2_000)) == [message]


def test_a_pod_on_a_node_that_its_project_may_use_is_fine() -> None:
    fine = [replace(TRAINING, node="n2"), NOTEBOOK, pod(1_000, "x", project="q", node="n3")]
    assert not violations("node-affinity", *GROUPS, *fine)
    assert subjects("node-affinity", *GROUPS, *fine) == 2
    assert subjects("node-affinity", *GROUPS, *fine, since_ms=1_001) == 0


def test_a_node_that_changes_its_group_later_and_a_pod_that_waits_are_fine() -> None:
    later = NodeSeen(2_000, "n1", 8, node_type="blue")
    assert not violations("node-affinity", *GROUPS, NOTEBOOK, later, replace(NOTEBOOK, t_ms=3_000))
    waits = replace(TRAINING, node="", phase="Pending")
    assert subjects("node-affinity", *GROUPS, waits) == 0


def test_a_deleted_project_limits_no_job() -> None:
    away: list[Event] = [ProjectDeleted(500, "p"), delete(600, "t"), evicted(TRAINING, 1_000)]
    assert not violations("node-affinity", *GROUPS, *away)
