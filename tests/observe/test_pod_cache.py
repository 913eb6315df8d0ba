"""The pod cache shows pods as they will be: a request that an executor has begun counts as it will when the watch
shows its result.
"""

from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Metadata, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.names import (
    ADMITTED_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    GPU_RESERVATIONS_ANNOTATION,
    GPU_UUIDS_ANNOTATION,
    NOMINATED_DEVICES_ANNOTATION,
    SUCCESSOR_NOMINATION_ANNOTATION,
)
from orchestrator.observe.nominations import nomination_of
from orchestrator.observe.pod_cache import PodCache
from orchestrator.observe.reader import Reader
from orchestrator.planner.model import PodState
from orchestrator.planner.placements import Placement
from tests.observe.objects import decoded, job, namespace, node, pod, project

ON_N1 = Placement("n-1", (2, 3))
WAITS = pod("train-0", owner="train", gpus=2)
RUNS = pod("train-0", owner="train", gpus=2, node="n-1", annotations={GPU_DEVICES_ANNOTATION: "2,3"})
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def written(shown: Pod, *, annotations: dict[str, str], **metadata: Any) -> Pod:
    """Return the pod with these additions to its metadata, as the API server would send it."""
    merged = {**shown.metadata.annotations, **annotations}
    return msgspec.structs.replace(
        shown, metadata=msgspec.structs.replace(shown.metadata, annotations=merged, **metadata)
    )


def shown_as(
    shown: Pod, node_name: str = "", nominated: str = "", *, conditions: tuple[Any, ...] = ()
) -> Pod:
    """Return the pod with this node, nominated node and conditions."""
    status = {"phase": "Pending", "nominatedNodeName": nominated, "conditions": list(conditions)}
    return msgspec.structs.replace(
        shown,
        spec=msgspec.structs.replace(shown.spec, node_name=node_name),
        status=decoded(Pod, status=status).status,
    )


def bind(cache: PodCache) -> None:
    cache.bind("uid-train-0", ON_N1)


def evict(cache: PodCache) -> None:
    cache.evict("uid-train-0")


def nominate(cache: PodCache) -> None:
    cache.nominate("uid-train-0", ON_N1)


def evict_and_nominate(cache: PodCache) -> None:
    evict(cache)
    nominate(cache)


BOUND = written(
    shown_as(WAITS, "n-1"), annotations={GPU_DEVICES_ANNOTATION: "2,3", ADMITTED_ANNOTATION: "uid-train-0"}
)
LEAVES = written(
    shown_as(RUNS, "n-1", conditions=(EVICTED,)),
    annotations={},
    deletion_timestamp="2026-11-27T10:00:30Z",
    deletion_grace_period_seconds=30,
)
REQUESTS = [
    pytest.param(WAITS, bind, BOUND, id="binding"),
    pytest.param(RUNS, evict, LEAVES, id="eviction"),
    pytest.param(
        WAITS,
        nominate,
        written(shown_as(WAITS, nominated="n-1"), annotations={NOMINATED_DEVICES_ANNOTATION: "2,3"}),
        id="nomination",
    ),
    pytest.param(
        RUNS,
        evict_and_nominate,
        written(LEAVES, annotations={SUCCESSOR_NOMINATION_ANNOTATION: "n-1:2,3"}),
        id="eviction with a nomination",
    ),
]


def reader_of(*pods: Pod) -> Reader:
    reader = Reader()
    for seen in (
        node("n-1"),
        namespace("muster-team-a", "team-a"),
        project("team-a", quota=4),
        job("train", "2026-11-21T10:00:00Z"),
        *pods,
    ):
        reader.note(Change("added", seen))
    return reader


@pytest.mark.parametrize(("before", "request_of", "after"), REQUESTS)
def test_the_planner_reads_the_same_before_and_after_the_watch_shows_a_request(
    before: Pod, request_of: Any, after: Pod
) -> None:
    reader = reader_of(before)
    unchanged = reader.read().snapshot
    request_of(reader.pods)
    assumed = reader.read().snapshot
    assert assumed != unchanged
    assert assumed == reader_of(after).read().snapshot
    reader.note(Change("modified", after, before))
    shown = reader.read().snapshot
    assert shown.workloads is assumed.workloads, "the echo of the request opens no new books"


@pytest.mark.parametrize(
    ("before", "request_of", "forget"),
    [
        pytest.param(WAITS, bind, PodCache.forget_binding, id="binding"),
        pytest.param(RUNS, evict, PodCache.forget_eviction, id="eviction"),
        pytest.param(WAITS, nominate, PodCache.forget_nomination, id="nomination"),
    ],
)
def test_a_forgotten_request_leaves_the_pod_as_the_watch_shows_it(
    before: Pod, request_of: Any, forget: Any
) -> None:
    reader = reader_of(before)
    unchanged = reader.read().snapshot
    request_of(reader.pods)
    assert reader.read().snapshot != unchanged
    forget(reader.pods, "uid-train-0")
    assert reader.read().snapshot == unchanged


def test_a_change_of_the_watch_and_an_assumption_both_count() -> None:
    reader = reader_of(WAITS)
    reader.pods.bind("uid-train-0", ON_N1)
    reader.read()
    renamed = msgspec.structs.replace(
        WAITS, metadata=msgspec.structs.replace(WAITS.metadata, labels={"muster.dev/workload": "renamed"})
    )
    reader.note(Change("modified", renamed, WAITS))
    (workload,) = reader.read().snapshot.workloads
    assert (workload.name, workload.pods[0].node) == ("renamed", "n-1")


def test_an_assumption_counts_for_a_pod_that_the_watch_shows_later() -> None:
    reader = reader_of()
    reader.pods.bind("uid-train-0", ON_N1)
    assert reader.read().snapshot.workloads == ()
    reader.note(Change("added", WAITS))
    (workload,) = reader.read().snapshot.workloads
    assert workload.pods[0].state is PodState.ALLOCATED


def test_no_assumption_brings_a_deleted_pod_back() -> None:
    reader = reader_of(WAITS)
    reader.pods.bind("uid-train-0", ON_N1)
    reader.note(Change("deleted", WAITS, WAITS))
    assert reader.read().snapshot.workloads == ()
    reader.pods.forget_binding("uid-train-0")
    reader.pods.evict("uid-train-0")
    assert reader.read().snapshot.workloads == ()
    reader.pods.confirm({})
    assert not reader.pods.bindings
    assert not reader.pods.evictions


def test_a_pod_that_was_refused_its_binding_after_its_eviction_began_waits() -> None:
    reader = reader_of(WAITS)
    reader.pods.bind("uid-train-0", ON_N1)
    reader.pods.evict("uid-train-0")
    (workload,) = reader.read().snapshot.workloads
    assert workload.pods[0].state is PodState.RELEASING
    reader.pods.forget_binding("uid-train-0")
    (workload,) = reader.read().snapshot.workloads
    assert workload.pods[0].state is PodState.PENDING


def test_a_nomination_of_the_executor_comes_before_an_inherited_one() -> None:
    read: dict[str, Pod] = {}
    cache = PodCache(lambda pod, _is_there: read.update({pod.metadata.uid: pod}))
    cache.note(Change("added", WAITS))

    def nominated() -> Placement | None:
        cache.settle()
        return nomination_of(read["uid-train-0"])

    inherited = Placement("n-2", (0, 1))
    cache.expect({}, {"uid-train-0": inherited})
    assert nominated() == inherited
    cache.nominate("uid-train-0", ON_N1)
    assert nominated() == ON_N1
    cache.nominate("uid-train-0", None)
    assert nominated() is None
    cache.forget_nomination("uid-train-0")
    assert nominated() == inherited
    cache.expect({}, {})
    assert nominated() is None
    assert read["uid-train-0"] is WAITS


def test_a_request_that_is_shown_before_the_next_decision_is_read_once() -> None:
    read: list[Pod] = []
    cache = PodCache(lambda pod, _is_there: read.append(pod))
    cache.note(Change("added", WAITS))
    cache.bind("uid-train-0", ON_N1)
    cache.note(Change("modified", BOUND, WAITS))
    cache.confirm({"uid-train-0": BOUND})
    cache.settle()
    assert read == [WAITS, BOUND]


def test_a_binding_replaces_the_annotations_of_the_template() -> None:
    forged = {
        GPU_RESERVATIONS_ANNOTATION: "uid-of-another",
        GPU_UUIDS_ANNOTATION: "GPU-0",
        GPU_DEVICES_ANNOTATION: "0",
    }
    read: dict[str, Pod] = {}
    cache = PodCache(lambda pod, _is_there: read.update({pod.metadata.uid: pod}))
    cache.note(Change("added", Pod(metadata=Metadata(name="job", uid="uid-job", annotations=forged))))
    cache.bind("uid-job", ON_N1)
    cache.settle()
    annotations = read["uid-job"].metadata.annotations
    assert annotations[GPU_RESERVATIONS_ANNOTATION] == ""
    assert annotations[GPU_UUIDS_ANNOTATION] == ""
    assert annotations[GPU_DEVICES_ANNOTATION] == "2,3"
