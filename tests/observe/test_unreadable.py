"""An unreadable object is named and skipped, its GPUs stay held, and everything else goes on."""

import logging
from typing import Any, TypeVar

import msgspec
import pytest

from orchestrator.cluster.objects import (
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Project,
    StorageClass,
)
from orchestrator.cluster.reflector import Change
from orchestrator.observe.budgets import Budgets
from orchestrator.observe.reader import Reader
from orchestrator.observe.snapshot import Reading
from orchestrator.observe.unreadable import Boundary, Unreadable
from orchestrator.planner import plan
from orchestrator.planner.model import PodState, Request
from tests import poison_objects as poison
from tests.observe.objects import decoded, namespace, node, pod, project
from tests.poison_objects import HEALTHY, Row

T = TypeVar("T")
HARMLESS = {
    "a node with room for 1000 pods",
    "12 claims of one class of 3 topologies",
}


def stored(kind: type[T], body: dict[str, Any]) -> T:
    """Return the object as the API server stores it: with a uid and a creation time."""
    name = body["metadata"]["name"]
    extra = {"uid": f"uid-{name}", "creationTimestamp": "2026-11-21T09:00:00Z"}
    return msgspec.convert({**body, "metadata": {**body["metadata"], **extra}}, kind)


def reader_of(*rows: Row) -> Reader:
    """Return a reader that knows two nodes, a healthy pod that fits on either, and the objects of the rows."""
    reader = Reader()
    things: list[Any] = [namespace("muster-team-a", "team-a"), project("team-a", quota=8), node("n-1")]
    allocatable = {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    for row in rows:
        things += [stored(Project, each) for each in row.projects]
        things += [stored(StorageClass, each) for each in row.storage_classes]
        things += [stored(PersistentVolumeClaim, each) for each in row.claims]
        things += [stored(Pod, each) for each in row.pods]
        allocatable |= row.node_allocatable
    ready = [{"type": "Ready", "status": "True"}]
    second = {"metadata": {"name": "n-2"}, "status": {"allocatable": allocatable, "conditions": ready}}
    things += [stored(type(node("n-2")), second), pod(HEALTHY, gpus=1)]
    for each in things:
        reader.note(Change("added", each))
    return reader


def bound(reading: Reading) -> set[str]:
    names = {each.id: each.name for one in reading.snapshot.workloads for each in one.pods}
    return {names[each.pod] for each in plan(reading.snapshot).bindings}


@pytest.mark.parametrize("name", poison.rows("n-2"))
def test_beside_every_row_of_the_table_a_healthy_pod_is_bound_and_the_culprit_named(name: str) -> None:
    row = poison.rows("n-2")[name]
    reading = reader_of(row).read()
    assert HEALTHY in bound(reading)
    words = {f"{each.namespace}/{each.name}".removeprefix("/"): each.why for each in reading.skipped}
    if name in HARMLESS or row.words == "NoNodeMatches":
        assert words == {}
    else:
        assert row.words in words[row.culprit]


def test_beside_all_rows_at_once_a_healthy_pod_is_bound_and_every_culprit_is_named() -> None:
    table = poison.rows("n-2")
    reading = reader_of(*table.values()).read()
    assert HEALTHY in bound(reading)
    named = {f"{each.namespace}/{each.name}".removeprefix("/") for each in reading.skipped}
    culprits = {each.culprit for each in table.values() if each.culprit and each.words != "NoNodeMatches"}
    assert culprits <= named


def test_an_object_that_became_readable_is_counted_with_again() -> None:
    table = poison.rows("n-2")
    reader = reader_of(*table.values())
    reader.read()
    for row in table.values():
        for each in row.pods:
            reader.note(Change("deleted", stored(Pod, each)))
        for each in row.projects:
            reader.note(Change("deleted", stored(Project, each)))
    reader.note(Change("modified", node("n-2")))
    reading = reader.read()
    assert (reading.skipped, reading.unreadable_pods, reading.unreadable_projects) == ((), {}, {})
    assert [each.foreign for each in reading.snapshot.nodes] == [Request(), Request()]


@pytest.mark.parametrize(
    ("made", "gpus_free"),
    [
        pytest.param(
            pod("p", gpus=2, node="n-2", annotations={"muster.dev/gpu-devices": "x"}), 6, id="number"
        ),
        pytest.param(
            pod("p", node="n-2", annotations={"muster.dev/gpu-fraction": "x"}), 7, id="unknown part"
        ),
        pytest.param(
            pod("p", node="n-2", annotations={"muster.dev/gpu-fraction": "x", "muster.dev/gpu-devices": "0"}),
            7,
            id="known device",
        ),
        pytest.param(
            pod(
                "p",
                gpus=3,
                node="n-2",
                annotations={"muster.dev/min-member": "9" * 30, "muster.dev/gpu-devices": "0,1,2"},
            ),
            5,
            id="an unreadable workload",
        ),
        pytest.param(
            pod("p", gpus=(1 << 62), node="n-2", spec={"schedulerName": "default-scheduler"}), 0, id="foreign"
        ),
        pytest.param(pod("p", node="n-2", annotations={"muster.dev/sub-groups": "x"}), 8, id="no GPU"),
    ],
)
def test_the_gpus_of_an_unreadable_pod_are_not_given_away(made: Pod, gpus_free: int) -> None:
    reader = Reader()
    seekers = [pod(f"seeker-{each}", gpus=1) for each in range(9)]
    for each in (
        node("n-2"),
        namespace("muster-team-a", "team-a"),
        project("team-a", quota=99),
        made,
        *seekers,
    ):
        reader.note(Change("added", each))
    reading = reader.read()
    bindings = plan(reading.snapshot).bindings
    assert len(bindings) == gpus_free
    assert [each.name for each in reading.skipped] == ["p"]
    held = set(made.metadata.annotations.get("muster.dev/gpu-devices", "")) & set("012")
    assert not held & {str(device) for each in bindings for device in each.devices}


def test_an_unreadable_pod_with_known_devices_counts_against_its_project() -> None:
    reader = Reader()
    annotations = {"muster.dev/gpu-fraction": "x", "muster.dev/gpu-devices": "0,1,2"}
    forged = pod("p", gpus=3, node="n-1", annotations=annotations)
    for each in (node("n-1"), namespace("muster-team-a", "team-a"), project("team-a", quota=3), forged):
        reader.note(Change("added", each))
    assert plan(reader.read().snapshot).allocated_gpu_milli == {"team-a": 3000}


def test_a_running_gang_of_which_one_pod_cannot_be_read_is_not_torn_apart() -> None:
    reader = Reader()
    members = [
        pod(
            f"g-{each}",
            gpus=1,
            owner="g",
            node="" if each == 3 else "n-1",
            annotations={
                "muster.dev/min-member": "4",
                "muster.dev/gpu-devices": str(each),
                **({"muster.dev/topology-required": "moon"} if each == 1 else {}),
            },
        )
        for each in range(4)
    ]
    for each in (node("n-1"), namespace("muster-team-a", "team-a"), project("team-a", quota=8), *members):
        reader.note(Change("added", each))
    reading = reader.read(now_us=5)
    (workload,) = reading.snapshot.workloads
    assert [(each.name, each.state) for each in workload.pods] == [
        ("g-0", PodState.ALLOCATED),
        ("g-1", PodState.ALLOCATED),
        ("g-2", PodState.ALLOCATED),
    ]
    assert (workload.stale_since_us, workload.min_member) == (0, 1)
    assert sorted(reading.unreadable_pods) == ["uid-g-0", "uid-g-1", "uid-g-2", "uid-g-3"]


@pytest.mark.parametrize(
    "allocatable",
    [
        {"pods": "many"},
        {"pods": "1.5"},
        {"nvidia.com/gpu": "2k"},
        {"cpu": "-1"},
        {"memory": "9223372036854775807"},
    ],
)
def test_a_node_that_cannot_be_read_is_skipped_alone(allocatable: dict[str, str]) -> None:
    odd = decoded(
        type(node("odd")), metadata={"name": "odd", "uid": "o"}, status={"allocatable": allocatable}
    )
    reader = Reader()
    for each in (odd, node("n-1")):
        reader.note(Change("added", each))
    reading = reader.read()
    assert [each.name for each in reading.snapshot.nodes] == ["n-1"]
    assert [(each.kind, each.name) for each in reading.skipped] == [("Node", "odd")]


@pytest.mark.parametrize(
    ("expressions", "why"),
    [
        (
            [{"key": f"k-{each}", "operator": "Exists"} for each in range(65)],
            "its selector has 65 requirements: at most 64 are read",
        ),
        *(
            (
                [{"key": "app", "operator": "Exists"}, {"key": "app", "operator": operator, "values": ["1"]}],
                f"its expression on the label 'app' has the operator '{operator}'; use In, NotIn, Exists, DoesNotExist",
            )
            for operator in ("Later", "Gt", "in", "")
        ),
    ],
)
def test_a_budget_that_cannot_be_read_lets_no_pod_of_its_namespace_be_evicted(
    expressions: list[dict[str, Any]], why: str
) -> None:
    budget = decoded(
        PodDisruptionBudget,
        metadata={"name": "b", "namespace": "muster-team-a", "uid": "b"},
        spec={"selector": {"matchExpressions": expressions}},
        status={"disruptionsAllowed": 5},
    )
    running = pod("p", node="n-1", phase="Running")  # no label of the pod matches the budget's selector
    budgets = Budgets()
    (found,) = budgets.read([budget], {"uid-p": running}, frozenset(), {})
    assert (found.allowed, found.pods) == (0, ("uid-p",))
    (skipped,) = budgets.skipped
    assert str(skipped) == (f"PodDisruptionBudget muster-team-a/b: {why}; no pod of its namespace is evicted")


def test_a_circle_of_departments_has_no_end_either() -> None:
    reader = Reader()
    for number in range(100):
        body = poison.project(f"p-{number:02}", f"p-{(number + 1) % 100:02}")
        reader.note(Change("added", stored(Project, body)))
    for body in (poison.project("a", "b"), poison.project("b", "a")):
        reader.note(Change("added", stored(Project, body)))
    reading = reader.read()
    assert reading.snapshot.projects == ()
    assert len(reading.unreadable_projects) == 102
    assert reading.unreadable_projects["b"] == (
        "the departments above it form a circle (b > a > b): give one of them another parent, or none"
    )


def test_a_mistake_in_muster_affects_its_object_alone_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    boundary = Boundary()
    metadata = pod("b", namespace="a").metadata

    def broken() -> None:
        raise TypeError("no such thing")

    with caplog.at_level(logging.ERROR):
        answers = [boundary.read("Pod", metadata, broken) for _ in range(3)]
    assert answers == [Unreadable("a mistake in muster: TypeError: no such thing")] * 3
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "Pod a/b" in record.message
