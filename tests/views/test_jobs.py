from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator import names
from orchestrator.cluster.objects import Event, Job, Pod, Service, StatefulSet
from orchestrator.views.job_record import job_record
from orchestrator.views.jobs import (
    Listing,
    WorkloadView,
    duration_seconds,
    events_of,
    index_of,
    workload_views,
)

JSON = dict[str, Any]

NAMESPACE = "muster-a"
PROJECTS = {NAMESPACE: "a"}


def template(gpus: int = 1, fraction: str = "", **annotations: str) -> JSON:
    if fraction:
        annotations[names.GPU_FRACTION_ANNOTATION] = fraction
    limits = {} if fraction else {"nvidia.com/gpu": str(gpus)}
    containers = [{"name": "main", "image": "image", "resources": {"limits": limits}}]
    return {
        "metadata": {"annotations": annotations},
        "spec": {"schedulerName": "muster", "containers": containers},
    }


def metadata(name: str, second: int = 0, **more: Any) -> JSON:
    stamp = f"2026-01-01T00:00:{second:02}Z"
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": stamp, **more}


def job(name: str, second: int = 0, *, status: JSON | None = None, **spec: Any) -> Job:
    body = {
        "metadata": metadata(name, second),
        "spec": {"template": template(), **spec},
        "status": status or {},
    }
    return msgspec.convert(body, Job)


def pod(owner: str, number: int = 0, *, node: str = "", started: int | None = None, **more: Any) -> Pod:
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner,
        "uid": f"uid-{owner}",
        "controller": True,
    }
    status = {"phase": "Running" if node else "Pending", **more}
    if started is not None:
        status["startTime"] = f"2026-01-01T00:01:{started:02}Z"
    body = {
        "metadata": metadata(f"{owner}-{number}", number, ownerReferences=[reference]),
        "spec": template()["spec"] | {"nodeName": node},
        "status": status,
    }
    return msgspec.convert(body, Pod)


def one(listing: Listing) -> WorkloadView:
    (view,) = workload_views(listing)
    return view


@pytest.mark.parametrize(
    ("spec", "gpu_milli"),
    [
        ({}, 1000),
        ({"template": template(4)}, 4000),
        ({"template": template(fraction="0.5")}, 500),
        ({"parallelism": 3, "completions": 9, "template": template(2)}, 6000),
        ({"parallelism": 3, "completions": 2}, 2000),
        ({"template": template(fraction="half")}, 0),
        ({"template": template(fraction="1e999999")}, 0),
    ],
)
def test_the_gpus_of_a_job_are_those_of_all_its_pods(spec: JSON, gpu_milli: int) -> None:
    assert one(Listing(PROJECTS, jobs=[job("x", **spec)])).gpu_milli == gpu_milli


def test_pods_are_joined_by_the_uid_of_their_owner_not_by_name() -> None:
    stranger = msgspec.structs.replace(
        pod("x"), metadata=msgspec.convert(metadata("x-0"), type(pod("x").metadata))
    )
    views = workload_views(Listing(PROJECTS, jobs=[job("x")], pods=[pod("x", 1), stranger]))
    assert sorted((view.kind, len(view.pods)) for view in views) == [("Job", 1), ("Pod", 1)]


def test_pods_of_an_owner_that_is_not_read_are_one_workload() -> None:
    view = one(Listing(PROJECTS, pods=[pod("replicas", 0, node="n1"), pod("replicas", 1, node="n2")]))
    assert (view.name, view.gpu_milli, view.node) == ("replicas", 2000, "<multiple>")


def test_pods_outside_of_projects_are_not_shown() -> None:
    assert workload_views(Listing({}, jobs=[job("x")], pods=[pod("y")])) == []


def test_the_waiting_stand_on_top_and_the_rest_newest_first() -> None:
    jobs = [job(name, second) for second, name in enumerate(("a", "b", "c", "d"))]
    pods = [pod("a", node="n", started=5), pod("b", node="n", started=9), pod("c")]
    assert [view.name for view in workload_views(Listing(PROJECTS, jobs, [], pods))] == ["d", "c", "b", "a"]


def test_jobs_of_one_second_keep_the_order_of_submission() -> None:
    late, early = job("aaa"), job("zzz")
    late.metadata.annotations[names.SUBMITTED_AT_ANNOTATION] = "2026-01-01T00:00:00.000002Z"
    early.metadata.annotations[names.SUBMITTED_AT_ANNOTATION] = "2026-01-01T00:00:00.000001Z"
    assert [view.name for view in workload_views(Listing(PROJECTS, [early, late]))] == ["aaa", "zzz"]


@pytest.mark.parametrize(
    ("label", "preemptible", "shown"),
    [
        ("train", None, "Train"),
        ("train", "false", "Train"),
        ("interactive", None, "Interactive"),
        ("interactive", "true", "Interactive-Preemptible"),
        (None, None, "Interactive"),
    ],
)
def test_the_type_as_it_is_shown(label: str | None, preemptible: str | None, shown: str) -> None:
    annotations = {} if preemptible is None else {names.PREEMPTIBLE_ANNOTATION: preemptible}
    labels = {} if label is None else {names.TYPE_LABEL: label}
    body = {"metadata": metadata("x", labels=labels), "spec": {"template": template(1, "", **annotations)}}
    view = one(Listing(PROJECTS, stateful_sets=[msgspec.convert(body, StatefulSet)]))
    assert view.type == shown


def test_the_reason_for_waiting_is_that_of_a_pod_without_a_node() -> None:
    refused = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
    waiting = Listing(PROJECTS, jobs=[job("x")], pods=[pod("x", conditions=refused)])
    placed = Listing(PROJECTS, jobs=[job("x")], pods=[pod("x", node="n", conditions=refused)])
    assert (one(waiting).waits_because, one(placed).waits_because) == ("no room", "")


def test_failed_pods_of_a_controller_hold_nothing_beside_their_successor() -> None:
    failed = [
        pod("x", number, node="n", phase="Failed", reason="UnexpectedAdmissionError") for number in range(3)
    ]
    view = one(Listing(PROJECTS, pods=[*failed, pod("x", 3)]))
    assert (view.gpu_milli, view.held_gpu_milli, len(view.pods)) == (1000, 0, 4)
    ended = one(Listing(PROJECTS, pods=failed))
    assert (ended.gpu_milli, ended.held_gpu_milli) == (1000, 0)


@pytest.mark.parametrize(
    ("phase", "condition", "status"),
    [("Running", "True", "NodeNotReady"), ("Running", "False", "Running"), ("Failed", "True", "Error")],
)
def test_a_stuck_pod_shows_the_word_and_the_message_of_the_operator(
    phase: str, condition: str, status: str
) -> None:
    stuck = [
        {
            "type": "muster.dev/Stuck",
            "status": condition,
            "reason": "NodeNotReady",
            "message": "node n is off",
        }
    ]
    view = one(Listing(PROJECTS, pods=[pod("x", node="n", phase=phase, conditions=stuck)]))
    assert view.status == status
    assert view.waits_because == ("NodeNotReady: node n is off" if status == "NodeNotReady" else "")


def test_a_job_has_run_from_its_first_pod_to_its_end() -> None:
    status = {
        "completionTime": "2026-01-01T00:01:30Z",
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    view = one(Listing(PROJECTS, jobs=[job("x", status=status)], pods=[pod("x", node="n", started=10)]))
    assert duration_seconds(view, 0) == 20
    assert duration_seconds(one(Listing(PROJECTS, jobs=[job("x")])), 10**18) == 0


def test_a_sweep_names_the_indexes_that_ended() -> None:
    spec: JSON = {"completionMode": "Indexed", "completions": 100, "parallelism": 10}
    status = {"succeeded": 38, "completedIndexes": "0-36,40", "failedIndexes": "37,39"}
    annotations = {"batch.kubernetes.io/job-completion-index": "41"}
    running = pod("x", node="n")
    running = msgspec.structs.replace(
        running, metadata=msgspec.structs.replace(running.metadata, annotations=annotations)
    )
    view = one(Listing(PROJECTS, jobs=[job("x", status=status, **spec)], pods=[running]))
    assert str(view.indexes) == "38 of 100 succeeded, failed: 37,39"
    assert [index_of(each) for each in view.pods] == [41]
    assert job_record(view, 0)["indexes"] == {
        "count": 100,
        "succeededCount": 38,
        "succeededIndexes": "0-36,40",
        "failedIndexes": "37,39",
    }
    assert one(Listing(PROJECTS, jobs=[job("x")])).indexes is None


def test_a_node_port_is_reached_at_the_node_of_the_pod() -> None:
    labels = {names.WORKLOAD_LABEL: "x"}
    body = {
        "metadata": metadata("x", labels=labels),
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
    }
    service = msgspec.convert(body, Service)
    placed = Listing(PROJECTS, [job("x")], pods=[pod("x", node="n", hostIP="10.0.0.1")], services=[service])
    assert one(placed).urls == ("http://10.0.0.1:30080",)
    assert one(Listing(PROJECTS, [job("x")], services=[service])).urls == ("<pending>",)


EVENTS: list[tuple[str, str, int, bool]] = [
    ("uid-x-0", "x-0", 9, True),
    ("uid-x", "x", 3, True),
    ("uid-evicted", "x-bcdfg", 7, True),
    ("uid-of-an-earlier-workload", "x-bcdfg", 4, False),
    ("uid-of-another-workload", "x-bcdfg-0", 7, False),
    ("uid-of-another-workload", "xx-bcdfg", 7, False),
]


@pytest.mark.parametrize(("uid", "name", "second", "shown"), EVENTS)
def test_events_of_deleted_pods_are_shown_but_not_those_of_others(
    uid: str, name: str, second: int, shown: bool
) -> None:
    view = one(Listing(PROJECTS, jobs=[job("x", 5)], pods=[pod("x")]))
    assert bool(events_of(view, [event(uid, name, second)])) is shown


def test_events_of_deleted_pods_of_a_sweep_are_shown() -> None:
    sweep = job("x", 5, completionMode="Indexed", completions=2)
    view = one(Listing(PROJECTS, jobs=[sweep], pods=[]))
    evicted, other = event("uid-evicted", "x-1-bcdfg", 7), event("uid-other", "x-y-bcdfg", 7)
    assert events_of(view, [evicted, other]) == [evicted]


def test_events_are_in_the_order_of_time() -> None:
    view = one(Listing(PROJECTS, jobs=[job("x")], pods=[pod("x")]))
    late, early = event("uid-x-0", "x-0", 9), event("uid-x", "x", 3)
    assert events_of(view, [late, early]) == [early, late]


def event(uid: str, name: str, second: int) -> Event:
    about = {"kind": "Pod", "name": name, "uid": uid}
    stamp = f"2026-01-01T00:00:{second:02}Z"
    return msgspec.convert(
        {"metadata": metadata("e"), "involvedObject": about, "lastTimestamp": stamp}, Event
    )
