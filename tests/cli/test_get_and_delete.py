"""`muster get` and `muster delete`: the fields of a job, and the objects deleted with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.memory_api_server import pod_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"
REASON = "Unschedulable: 2 GPUs asked for, team-a has 1 left"


def test_get_shows_facts_pods_and_events(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    muster("submit", "hyper1", "-i", "image", "-g", "1")
    pod = pod_of(_job(server), "hyper1-abc", phase="Running", node_name="dgx1-1", hostIP="10.0.0.1")
    server.add(pod)
    server.add(_event("hyper1-abc", pod, "Scheduled", "placed on dgx1-1"))
    lines = muster("get", "hyper1").lines
    assert [line.split(":")[0] for line in lines[:6]] == [
        "NAME",
        "TYPE",
        "STATUS",
        "NAMESPACE",
        "PRIORITY",
        "TRAINING DURATION",
    ]
    pods = lines.index("Pods:")
    assert lines[pods + 1].split() == ["POD", "STATUS", "TRAINER", "AGE", "NODE"]
    cells = lines[pods + 2].split()
    assert (cells[:3], cells[4]) == (["hyper1-abc", "RUNNING", "JOB"], "dgx1-1/10.0.0.1")
    events = lines.index("Events:")
    assert lines[events + 1].split() == ["SOURCE", "TYPE", "AGE", "MESSAGE"]
    assert set(lines[events + 2]) == {"-", " "}
    assert lines[events + 3].split(maxsplit=3)[3] == "[Scheduled] placed on dgx1-1"


def test_get_shows_the_volumes_of_a_job_with_their_directories(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}
    server.add({**claim, "metadata": {"name": "test", "namespace": NAMESPACE}})
    muster("submit", "train", "-i", "image", "--pvc", "test:/tmp/pvc1mount", "-v", "/data:/data")
    assert "VOLUMES" not in muster("get", "train").out
    job = server.find("jobs", "train", NAMESPACE)
    assert job is not None
    pod = pod_of(job, "train-abc", phase="Running", node_name="dgx1-1")
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}
    pod["spec"]["volumes"].append(scratch)
    pod["spec"]["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
    server.add(pod)
    volumes = "VOLUMES: test at /tmp/pvc1mount, train-abc-scratch at /scratch"
    assert volumes in muster("get", "train").lines


def test_get_says_why_a_job_waits_even_without_an_event(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "hyper1", "-i", "image", "-g", "2")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": REASON}
    server.add(pod_of(_job(server), "hyper1-abc", conditions=[condition]))
    outcome = muster("get", "hyper1")
    assert f"WAITS BECAUSE: {REASON}" in outcome.lines
    assert outcome.lines[-1].endswith(f"[Unschedulable] {REASON}")
    assert muster("get", "hyper1", "-o", "json").json["waitsBecause"] == REASON


def test_events_of_other_jobs_are_not_shown(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    muster("submit", "hyper1", "-i", "image")
    other = {"metadata": {"uid": "uid-of-another"}}
    server.add(_event("hyper1-old", other, "Killing", "an earlier job of that name"))
    assert "earlier" not in muster("get", "hyper1").out


def test_a_pod_without_a_controller_is_a_workload_of_its_own(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    spec = {"schedulerName": "muster", "containers": [{"name": "main", "image": "image"}]}
    metadata = {"name": "bare", "namespace": NAMESPACE, "annotations": {"muster.dev/gpu-fraction": "0.25"}}
    server.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    found = muster("get", "bare", "-o", "json").json
    assert (found["trainer"], found["gpus"], found["createdByCli"]) == ("Pod", "0.25", False)
    assert muster("delete", "bare").code == 0
    assert server.all("pods") == []


def test_get_of_a_missing_job_says_where_it_might_be(muster: Callable[..., Outcome]) -> None:
    outcome = muster("get", "nothing")
    assert (outcome.code, outcome.out) == (1, "")
    assert "does not exist in project team-a" in outcome.err


def test_a_missing_name_does_not_stop_the_others_from_being_deleted(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name in ("one", "two"):
        muster("submit", name, "-i", "image")
    outcome = muster("delete", "one", "nothing", "two")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "nothing" in outcome.err
    assert server.all("jobs") == []


def test_deleting_a_job_deletes_its_service_and_ingress(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "note", "-i", "image", "--interactive", "-s", "ingress", "--port", "8888")
    assert muster("delete", "note").code == 0
    assert [each for kind in ("statefulsets", "services", "ingresses") for each in server.all(kind)] == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "%2e", "A", "x?y", "x,y"])
@pytest.mark.parametrize("command", [("delete",), ("get",), ("project", "delete"), ("list", "-p")])
def test_a_text_that_can_be_no_name_never_becomes_a_path(
    name: str, command: tuple[str, ...], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster(*command, name)
    assert outcome.code == 1
    assert "not" in outcome.err
    assert {path for _, path in server.requests} <= {"/api/v1/namespaces/muster-team-a"}


def test_delete_without_names_shows_help(muster: Callable[..., Outcome]) -> None:
    outcome = muster("delete")
    assert outcome.code == 2
    assert "Usage: muster delete" in outcome.err


def _job(server: MemoryApiServer) -> dict[str, Any]:
    job = server.find("jobs", "hyper1", NAMESPACE)
    assert job is not None
    return job


def _event(name: str, about: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1", "namespace": NAMESPACE},
        "involvedObject": {"kind": "Pod", "name": name, "uid": about["metadata"].get("uid", "")},
        "reason": reason,
        "message": message,
        "type": "Normal",
    }
