"""A pod is stuck if it is past its grace period, or terminates on a node that is not ready."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.reflector import Change
from orchestrator.observe.reader import Reader
from orchestrator.observe.snapshot import Reading
from orchestrator.observe.stuck_pods import STUCK_AFTER_SECONDS
from orchestrator.planner import model
from tests.observe.objects import decoded, namespace, node, pod, project

DELETED = "2026-11-27T10:00:00Z"
ENDS_US = time_us(DELETED)
MARGIN_US = STUCK_AFTER_SECONDS * 1_000_000
TERMINATING: dict[str, Any] = {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 30}
SLOWLY = {**TERMINATING, "deletionGracePeriodSeconds": 7200}


def bound(name: str = "job", *, phase: str = "Running", scheduler: str = "muster", **metadata: Any) -> Pod:
    return pod(name, gpus=2, node="n1", phase=phase, spec={"schedulerName": scheduler}, **metadata)


def dead(name: str) -> Node:
    return node(name, ready=False)


class Cluster:
    """A reader that knows one project, one node and these pods."""

    def __init__(self, *pods: Pod, host: Node | None = None) -> None:
        self.reader = Reader()
        around = (namespace("muster-team-a", "team-a"), project("team-a", quota=8), host or node("n1"))
        for each in (*around, *pods):
            self.reader.note(Change("added", each))

    def read(self, now_us: int) -> Reading:
        return self.reader.read(now_us=now_us)

    def states(self, now_us: int) -> dict[str, tuple[str, bool]]:
        return {
            each.name: (each.state.value, each.stuck)
            for workload in self.read(now_us).snapshot.workloads
            for each in workload.pods
        }


@pytest.mark.parametrize(
    ("one", "host", "now_us", "expected"),
    [
        (bound(), node("n1"), ENDS_US + 10 * MARGIN_US, ("allocated", False)),
        (bound(**TERMINATING), node("n1"), ENDS_US + MARGIN_US, ("releasing", False)),
        (bound(**TERMINATING), node("n1"), ENDS_US + MARGIN_US + 1, ("releasing", True)),
        (bound(**TERMINATING), node("n1"), 0, ("releasing", False)),
        (bound(**TERMINATING), dead("n1"), ENDS_US - MARGIN_US, ("releasing", True)),
        (bound(**TERMINATING), dead("n1"), 0, ("releasing", True)),
        (bound(), dead("n1"), ENDS_US, ("allocated", False)),
        (bound(**SLOWLY), dead("n1"), ENDS_US - MARGIN_US, ("allocated", False)),
        (bound(**SLOWLY), dead("n1"), ENDS_US + MARGIN_US + 1, ("releasing", True)),
        (bound(**SLOWLY), node("n1"), ENDS_US + MARGIN_US + 1, ("releasing", True)),
        (bound(scheduler="other", **TERMINATING), node("n1"), ENDS_US + MARGIN_US + 1, ("releasing", True)),
        (bound(**{**TERMINATING, "deletionTimestamp": "soon"}), node("n1"), ENDS_US, ("releasing", False)),
        (
            bound(annotations={"muster.dev/min-member": "x"}, **TERMINATING),
            dead("n1"),
            0,
            ("releasing", True),
        ),
    ],
)
def test_a_pod_is_stuck_after_its_grace_period_or_without_a_kubelet(
    one: Pod, host: Node, now_us: int, expected: tuple[str, bool]
) -> None:
    assert Cluster(one, host=host).states(now_us) == {"job": expected}


def test_only_time_or_the_node_changes_and_the_pod_is_stuck_and_again_not() -> None:
    cluster = Cluster(bound(**TERMINATING), bound("other"))
    assert cluster.states(ENDS_US)["job"] == ("releasing", False)
    before = cluster.read(ENDS_US).snapshot.workloads
    assert cluster.states(ENDS_US + 2 * MARGIN_US)["job"] == ("releasing", True)
    after = cluster.read(ENDS_US + 2 * MARGIN_US).snapshot.workloads
    assert [new is old for new, old in zip(after, before, strict=True)] == [False, True]
    assert cluster.states(ENDS_US)["job"] == ("releasing", False)
    cluster.reader.note(Change("modified", dead("n1")))
    assert cluster.states(ENDS_US)["job"] == ("releasing", True)
    cluster.reader.note(Change("modified", node("n1")))
    assert cluster.states(ENDS_US)["job"] == ("releasing", False)


def test_problems_name_the_node_and_the_command() -> None:
    cluster = Cluster(bound("runs"), bound("ends", **TERMINATING), bound("done", phase="Succeeded"))
    assert not cluster.read(ENDS_US).problems
    late = cluster.read(ENDS_US + 2 * MARGIN_US).problems
    assert [(uid, problem.code) for uid, problem in late.items()] == [("uid-ends", "Stuck")]
    assert "node n1: the pod should have ended at 2026-11-27T10:00:00Z" in late["uid-ends"].message
    since = "2026-11-27T09:58:00Z"
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    lost = decoded(Node, metadata={"name": "n1", "uid": "uid-n1"}, status={"conditions": [condition]})
    cluster.reader.note(Change("modified", lost))
    problems = cluster.read(ENDS_US).problems
    assert {uid: (problem.code, problem.node) for uid, problem in problems.items()} == {
        "uid-runs": ("NodeNotReady", "n1"),
        "uid-ends": ("NodeNotReady", "n1"),
    }
    assert f"node n1 is not ready since {since}" in problems["uid-runs"].message
    assert "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in (
        problems["uid-runs"].message
    )
    cluster.reader.note(Change("deleted", bound("runs")))
    assert list(cluster.read(ENDS_US).problems) == ["uid-ends"]


def test_a_stuck_pod_is_neither_charged_nor_waited_for() -> None:
    (workload,) = Cluster(bound(**TERMINATING), host=dead("n1")).read(0).snapshot.workloads
    assert workload.pods[0].state is model.PodState.RELEASING
    assert workload.started_at_us == 0
