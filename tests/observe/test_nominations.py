"""Nominations of pods: how they are written on pods, and how the planner reads them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.names import NOMINATED_DEVICES_ANNOTATION, SUCCESSOR_NOMINATION_ANNOTATION
from orchestrator.observe.nominations import (
    MAX_NOMINATED_DEVICES,
    bound_annotations,
    eviction_annotations,
    nomination_of,
    shows_nomination,
    waiting_annotations,
    with_nomination,
)
from orchestrator.observe.reader import Reader
from orchestrator.planner import model
from orchestrator.planner.placements import Placement
from tests.observe.assuming import assume
from tests.observe.objects import decoded, namespace, pod, project

DELETED = "2026-11-21T11:00:30Z"
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
PLACE = Placement("n2", (0, 1))


def status(each: Pod, **fields: Any) -> Pod:
    decoded_pod = decoded(Pod, status={"phase": each.status.phase, **fields})
    return msgspec.structs.replace(each, status=decoded_pod.status)


def leaving(
    text: str | None,
    *,
    name: str = "job",
    evicted: bool = True,
    deleted: bool = True,
    phase: str = "Running",
) -> Pod:
    """Return a terminating pod with this text as the nomination of its successor."""
    annotations = {} if text is None else {SUCCESSOR_NOMINATION_ANNOTATION: text}
    going = DELETED if deleted else None
    each = pod(name, gpus=2, node="n1", phase=phase, annotations=annotations, deletionTimestamp=going)
    return status(each, conditions=[EVICTED]) if evicted else each


def snapshot_pod(each: Pod, **assumed: Any) -> model.Pod:
    """Return the pod as the planner reads it."""
    reader = Reader()
    for seen in (namespace("muster-team-a", "team-a"), project("team-a", quota=4), each):
        reader.note(Change("added", seen))
    assume(reader.pods, **assumed)
    reading = reader.read()
    assert not reading.unreadable_pods
    return reading.snapshot.workloads[0].pods[0]


def place_read(each: Pod, **assumed: Any) -> tuple[str | None, tuple[int, ...]]:
    read_pod = snapshot_pod(each, **assumed)
    return read_pod.nominated_node, read_pod.nominated_devices


def test_the_place_of_a_pod_that_waits_is_read() -> None:
    each = status(pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: "0,1"}), nominatedNodeName="n2")
    assert place_read(each) == ("n2", (0, 1))


def test_the_place_of_the_successor_of_an_evicted_pod_is_read() -> None:
    assert place_read(leaving("n2:0,1")) == ("n2", (0, 1))
    assert place_read(leaving("n2:")) == ("n2", ())


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "0,0",
        "-1",
        "0,",
        ",",
        "1.5",
        "٣",
        "12345",
        ",".join(str(each) for each in range(MAX_NOMINATED_DEVICES + 1)),
        "a",
        " 0",
    ],
)
def test_unintended_devices_are_no_nomination(text: str) -> None:
    each = status(pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: text}), nominatedNodeName="n2")
    assert nomination_of(each) is None
    assert shows_nomination(each), "so it is taken away"
    assert place_read(each) == (None, ())
    assert place_read(leaving(f"n2:{text}")) == (None, ())


@pytest.mark.parametrize(
    "each",
    [
        pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: "0,1"}),
        pod("job", annotations={SUCCESSOR_NOMINATION_ANNOTATION: "n2:0,1"}),
        leaving("n2:0,1", evicted=False),
        leaving("n2:0,1", deleted=False),
        leaving(":0,1"),
        leaving(""),
    ],
    ids=["no node", "waits", "deleted by a user", "runs", "no place", "empty"],
)
def test_annotations_that_any_user_can_write_are_no_nomination(each: Pod) -> None:
    assert nomination_of(each) is None
    assert place_read(each) == (None, ())


def test_a_pod_that_has_ended_says_nothing_any_more() -> None:
    assert not shows_nomination(leaving("n2:0,1", phase="Failed"))
    ended = pod("job", phase="Failed")
    assert not shows_nomination(status(ended, nominatedNodeName="n2"))


@given(st.text(), st.text(max_size=20))
def test_any_annotation_is_read_or_ignored(text: str, node: str) -> None:
    for each in (
        leaving(text),
        leaving(f"{node}:{text}"),
        status(pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: text}), nominatedNodeName=node),
    ):
        place = nomination_of(each)
        assert place is None or (place.node and all(device >= 0 for device in place.devices))


@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True),
    st.lists(st.integers(0, 9999), unique=True, max_size=MAX_NOMINATED_DEVICES),
)
def test_written_nominations_are_read_again(node: str, devices: list[int]) -> None:
    place = Placement(node, tuple(devices))
    (text,) = eviction_annotations(place).values()
    assert nomination_of(leaving(text)) == place
    each = with_nomination(pod("job"), place)
    assert nomination_of(each) == place
    assert each.status.nominated_node_name == node
    assert with_nomination(each, place) is each
    assert nomination_of(with_nomination(each, None)) is None
    annotations = waiting_annotations(place)
    assert annotations == {
        NOMINATED_DEVICES_ANNOTATION: each.metadata.annotations.get(NOMINATED_DEVICES_ANNOTATION)
    }


def test_a_started_nomination_counts_before_the_watch_shows_it() -> None:
    each = status(pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: "0,1"}), nominatedNodeName="n2")
    assert place_read(each, nominations={"uid-job": Placement("n3", (7,))}) == ("n3", (7,))
    assert place_read(each, nominations={"uid-job": None}) == (None, ())
    running = pod("job", node="n1", phase="Running")
    assert place_read(running, nominations={"uid-job": PLACE}) == (None, ()), "it stays where it is"
    evicted = {"nominations": {"uid-job": PLACE}, "evictions": ("uid-job",)}
    assert place_read(running, **evicted) == ("n2", (0, 1))
    assert place_read(each, bindings={"uid-job": PLACE}) == (None, ()), "it is being bound"


def test_a_reader_notices_that_a_nomination_begins_and_ends() -> None:
    reader = Reader()
    reader.note(Change("added", namespace("muster-team-a", "team-a")))
    each = status(pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: "0"}), nominatedNodeName="n2")
    reader.note(Change("added", pod("job")))

    def node(nominated: dict[str, Placement | None]) -> str | None:
        assume(reader.pods, nominations=nominated)
        (workload,) = reader.read().snapshot.workloads
        return workload.pods[0].nominated_node

    assert [node({}), node({"uid-job": PLACE}), node({})] == [None, "n2", None]
    reader.note(Change("modified", each, pod("job")))
    assert [node({}), node({"uid-job": None}), node({})] == ["n2", None, "n2"]


def test_a_binding_empties_the_annotations_of_the_time_before() -> None:
    assert bound_annotations(pod("job"), None) == {}
    assert bound_annotations(pod("job"), PLACE) == {NOMINATED_DEVICES_ANNOTATION: ""}
    written = pod("job", annotations={NOMINATED_DEVICES_ANNOTATION: "0"})
    assert bound_annotations(written, None) == {NOMINATED_DEVICES_ANNOTATION: ""}
    assert bound_annotations(pod("job"), Placement("n2", ())) == {}
