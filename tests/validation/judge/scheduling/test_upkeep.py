"""Upkeep by an administrator: each invariant detects events that violate it, and accepts the nearest that do not."""

import pytest

from tests.validation.judge.events import CLUSTER, delete, evicted, gone, pod
from validation.judge.events import CommandRun, Event, NodesDrained, NodeSeen, NodesOpened, OperatorKilled
from validation.judge.scheduling.history import History
from validation.judge.scheduling.invariants import INVARIANTS, SUBJECTS

CORDONED = NodeSeen(1_000, "n1", 8, cordoned=True)
KILLED = OperatorKilled(10_000)
WAITS = pod(5_000, "w", node="", devices=(), phase="Pending", nominated_node="n2")
VICTIM = evicted(pod(4_000, "v"), 6_000)
AGAIN = pod(20_000, "v", uid="uid-v-2")


def violations(name: str, *events: Event, since_ms: int = 0) -> list[str]:
    return [one.message for one in INVARIANTS[name](History([*CLUSTER, *events], 60_000, since_ms=since_ms))]


def subjects(name: str, *events: Event, since_ms: int = 0) -> int:
    return SUBJECTS[name][1](History([*CLUSTER, *events], 60_000, since_ms=since_ms))


def test_a_pod_that_is_placed_on_a_cordoned_node_is_seen() -> None:
    assert violations("cordoned-node", CORDONED, pod(2_000, "a")) == [
        "pod p/a-0 was placed on n1, which is cordoned"
    ]


@pytest.mark.parametrize(
    "events",
    [
        [pod(500, "a"), CORDONED, pod(2_000, "a")],
        [CORDONED, pod(2_000, "a", node="n2")],
        [CORDONED, NodesOpened(1_500, ("n1",)), pod(2_000, "a")],
        [CORDONED, NodeSeen(1_500, "n1", 8), pod(2_000, "a")],
        [CORDONED, pod(2_000, "a", node="", phase="Pending")],
    ],
    ids=["was-there", "elsewhere", "opened", "seen-open", "waits"],
)
def test_present_pods_remain_and_other_nodes_take_pods(events: list[Event]) -> None:
    assert not violations("cordoned-node", *events)


def test_a_pod_placed_while_a_node_is_cordoned_is_a_subject() -> None:
    placed: list[Event] = [CORDONED, pod(2_000, "a", node="n2"), NodesOpened(3_000, ("n1",)), pod(4_000, "b")]
    assert subjects("cordoned-node", *placed) == 1
    assert subjects("cordoned-node", *placed, since_ms=2_001) == 0


def test_a_pod_vanishes_only_if_it_was_not_drained() -> None:
    held = pod(1_000, "a")
    drained = NodesDrained(2_000, ("n1",), ("uid-a",))
    assert not violations("nothing-vanishes", held, drained, gone(held, 3_000))
    other = pod(1_000, "b")
    assert violations("nothing-vanishes", other, drained, gone(other, 3_000)) == [
        "pod p/b-0 vanished: the API server deleted it, and the scheduler recorded no eviction"
    ]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([pod(12_000, "w", node="n1")], "pod p/w-0 was placed on n1, and was nominated to n2"),
        ([gone(WAITS, 12_000)], "pod p/w-0 was deleted before it got its nominated GPUs on n2"),
        ([AGAIN, evicted(AGAIN, 21_000)], "workload v of p was evicted again after the operator was killed"),
    ],
    ids=["elsewhere", "gone", "again"],
)
def test_a_broken_nomination_is_seen(events: list[Event], message: str) -> None:
    assert violations("nominations-last", WAITS, VICTIM, KILLED, *events) == [message]


@pytest.mark.parametrize(
    "events",
    [
        [WAITS, VICTIM, KILLED, pod(12_000, "w", node="n2"), pod(13_000, "w", node="n2")],
        [WAITS, VICTIM, pod(9_000, "w", node="n1"), KILLED],
        [WAITS, VICTIM, KILLED, delete(11_000, "w"), gone(WAITS, 12_000)],
        [WAITS, VICTIM, KILLED, evicted(VICTIM, 11_000)],
        [
            pod(3_000, "v", uid="uid-v-3"),
            WAITS,
            VICTIM,
            KILLED,
            evicted(pod(3_000, "v", uid="uid-v-3"), 11_000),
        ],
        [WAITS, VICTIM, KILLED, CommandRun(15_000, "submit", "q", ("x",)), AGAIN, evicted(AGAIN, 21_000)],
    ],
    ids=["fulfilled", "before", "deleted", "the-same", "another-pod-of-it", "another-claim"],
)
def test_a_kept_or_ended_nomination_is_no_violation(events: list[Event]) -> None:
    assert not violations("nominations-last", *events)


def test_a_nominated_pod_is_a_subject() -> None:
    assert subjects("nominations-last", WAITS, VICTIM, KILLED) == 1
    assert subjects("nominations-last", WAITS, VICTIM, KILLED, since_ms=10_001) == 0
    assert subjects("nominations-last", KILLED, WAITS) == 0
