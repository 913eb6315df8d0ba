"""Workloads that muster did not create, as users see them: with the name of their topmost controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")


def controlled(kind: str, version: str, name: str, uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def pod(name: str, gpus: int, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "image", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": {"schedulerName": "muster", "containers": [container]},
        "status": {"phase": "Pending"},
    }


def add_jobset(server: MemoryApiServer) -> None:
    """Add a JobSet of a driver and two workers, as its controller and the Job controller create it."""
    jobs = [("driver", 1), ("workers", 2)]
    server.serve(JOBSETS)
    server.add(
        {
            "apiVersion": JOBSETS.api_version,
            "kind": "JobSet",
            "metadata": {"name": "js", "namespace": NAMESPACE, "uid": "uid-js"},
            "spec": {
                "replicatedJobs": [
                    {"name": name, "replicas": 1, "template": {"spec": {"parallelism": count}}}
                    for name, count in jobs
                ]
            },
        }
    )
    for name, count in jobs:
        uid = f"uid-js-{name}"
        owner = controlled("JobSet", JOBSETS.api_version, "js", "uid-js")
        metadata = {"name": f"js-{name}-0", "namespace": NAMESPACE, "uid": uid, "ownerReferences": owner}
        server.add({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}})
        for number in range(count):
            server.add(
                pod(
                    f"js-{name}-0-{number}",
                    8,
                    labels={"jobset.sigs.k8s.io/replicatedjob-name": name},
                    ownerReferences=controlled("Job", "batch/v1", f"js-{name}-0", uid),
                )
            )


def rows(outcome: Outcome) -> list[list[str]]:
    return [line.split() for line in outcome.lines[2:]]


def test_a_jobset_is_one_row_under_its_own_name(muster: Muster, server: MemoryApiServer) -> None:
    add_jobset(server)
    (shown,) = muster("list", "-o", "json").json
    assert (shown["name"], shown["trainer"], shown["gpus"]) == ("js", "JobSet", "24")
    assert [row[:2] for row in rows(muster("list"))] == [["js", "Pending"]]


def test_explain_speaks_of_the_whole_jobset_which_does_not_fit(
    muster: Muster, server: MemoryApiServer
) -> None:
    add_jobset(server)
    explained = muster("explain", "js", "--json").json
    assert explained["waiting"] == {"pods": 3, "gpus": "24"}
    assert explained["starts"] == [], "two of the three would fit"
    assert "js of team-a waits: 24 GPUs in 3 pods." in muster("explain", "js").out


@pytest.mark.parametrize("code", [403, 404])
def test_a_jobset_that_may_not_be_read_has_its_name_all_the_same(
    muster: Muster, server: MemoryApiServer, code: int
) -> None:
    add_jobset(server)
    server.refuse("GET", "/apis/jobset.x-k8s.io/v1alpha2", code, "Forbidden" if code == 403 else "NotFound")
    assert [row[0] for row in rows(muster("list"))] == ["js"]
    outcome = muster("explain", "js")
    assert "js of team-a waits: 24 GPUs in 3 pods." in outcome.out


def test_explain_calls_a_gang_that_its_pods_ask_for_by_its_jobs_name(
    muster: Muster, server: MemoryApiServer
) -> None:
    metadata = {"name": "rawjob", "namespace": NAMESPACE, "uid": "uid-rawjob"}
    server.add({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2}})
    for suffix in ("9lx9h", "b2x7q"):
        server.add(
            pod(
                f"rawjob-{suffix}",
                9,
                annotations={"muster.dev/min-member": "2"},
                ownerReferences=controlled("Job", "batch/v1", "rawjob", "uid-rawjob"),
            )
        )
    assert [row[0] for row in rows(muster("list"))] == ["rawjob"]
    output = muster("explain", "rawjob").out
    assert output.startswith("rawjob of team-a waits: 18 GPUs in 2 pods.")
    assert "rawjob-" not in output


def test_bare_pods_that_ask_for_a_gang_of_one_name_are_one_row(
    muster: Muster, server: MemoryApiServer
) -> None:
    for suffix in "ab":
        server.add(
            pod(
                f"pair-{suffix}",
                1,
                labels={"muster.dev/workload": "pair"},
                annotations={"muster.dev/min-member": "2"},
            )
        )
    assert [row[0] for row in rows(muster("list"))] == ["pair"]
    assert muster("explain", "pair", "--json").json["waiting"] == {"pods": 2, "gpus": "2"}


@pytest.mark.parametrize("command", ["delete", "suspend", "resume"])
def test_objects_of_other_controllers_are_left_to_them(
    muster: Muster, server: MemoryApiServer, command: str
) -> None:
    add_jobset(server)
    outcome = muster(command, "js")
    assert outcome.code == 1
    assert "js is a JobSet" in outcome.err
    assert "kubectl" in outcome.err
