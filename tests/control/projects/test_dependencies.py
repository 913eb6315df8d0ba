"""Which jobs the operator starts because their dependencies are met: against a scripted API server."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Object, Project
from orchestrator.cluster.transport import Transport
from orchestrator.control.projects.dependencies import Dependencies
from tests.cluster.fake_api_server import Answer, FakeApiServer, access_to, serving, status
from tests.observe.objects import decoded, namespace

NAMESPACE = "muster-team-a"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
COMPLETE = [{"type": "Complete", "status": "True"}]
FAILED = [{"type": "Failed", "status": "True"}]


def cached(name: str, after: str | None = None, **more: Any) -> Object:
    annotations = {} if after is None else {"muster.dev/after": after}
    own = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "7"}
    return decoded(Object, metadata={**own, "annotations": annotations, **more})


def starter(transport: Transport, *jobs: Object, is_leader: bool = True) -> Dependencies:
    project = decoded(Project, metadata={"name": "team-a", "uid": "uid-team-a"}, spec={"gpu": {"quota": 1}})
    return Dependencies(
        transport,
        {job.metadata.uid: job for job in jobs},
        {"n": namespace(NAMESPACE, "team-a")},
        {"p": project},
        is_leader=lambda: is_leader,
    )


def answers(server: FakeApiServer, name: str, conditions: list[dict[str, str]], uid: str = "") -> None:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid or f"uid-{name}"}
    server.on("GET", f"{JOBS}/{name}", Answer({"metadata": metadata, "status": {"conditions": conditions}}))


A, B = "a:{}:uid-a", "b:ended:uid-b"
NOT_STARTED: list[tuple[list[dict[str, str]], str, dict[str, Any], bool]] = [
    ([], "succeeded", {}, True),
    (FAILED, "succeeded", {}, True),
    (COMPLETE, "failed", {}, True),
    (COMPLETE, "succeeded", {"uid": "another"}, True),
    (COMPLETE, "succeeded", {"namespace": "muster-team-b"}, True),
    (COMPLETE, "done", {}, True),
    (COMPLETE, "succeeded", {}, False),
]


@pytest.mark.parametrize(
    ("conditions", "state"),
    [(COMPLETE, "succeeded"), (COMPLETE, "ended"), (FAILED, "failed"), (FAILED, "ended")],
)
async def test_the_last_met_dependency_starts_the_job_in_the_same_request(
    conditions: list[dict[str, str]], state: str
) -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        answers(server, "a", conditions)
        server.on("PATCH", f"{JOBS}/train", Answer({}))
        await starter(transport, cached("a"), cached("train", A.format(state))).check()
        (started,) = server.requests_of("PATCH", f"{JOBS}/train")
    assert started.body == {
        "metadata": {"uid": "uid-train", "resourceVersion": "7", "annotations": {"muster.dev/after": None}},
        "spec": {"suspend": False},
    }


@pytest.mark.parametrize(("conditions", "state", "more", "is_leader"), NOT_STARTED)
async def test_no_other_job_is_started(
    conditions: list[dict[str, str]], state: str, more: dict[str, Any], is_leader: bool
) -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        answers(server, "a", conditions)
        jobs = cached("a", **more), cached("train", A.format(state))
        await starter(transport, *jobs, is_leader=is_leader).check()
        assert [request.method for request in server.requests if request.method != "GET"] == []


async def test_a_job_that_was_replaced_before_it_was_read_does_not_count() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        answers(server, "a", COMPLETE, uid="another")
        await starter(transport, cached("a"), cached("train", A.format("succeeded"))).check()
        assert [request.method for request in server.requests if request.method != "GET"] == []


async def test_a_met_dependency_is_removed_while_another_is_not_met() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        answers(server, "a", COMPLETE)
        answers(server, "b", [])
        server.on("PATCH", f"{JOBS}/train", Answer({}))
        train = cached("train", f"{A.format('succeeded')},{B}")
        await starter(transport, cached("a"), cached("b"), train).check()
        (left,) = server.requests_of("PATCH", f"{JOBS}/train")
    assert left.body["metadata"]["annotations"] == {"muster.dev/after": B}
    assert "spec" not in left.body


async def test_each_job_is_read_once_for_each_change_and_a_refused_start_is_tried_again() -> None:
    jobs = [cached("a"), *(cached(name, A.format("succeeded")) for name in ("one", "two"))]
    async with serving() as server, Transport(access_to(server)) as transport:
        answers(server, "a", COMPLETE)
        server.on("PATCH", f"{JOBS}/one", Answer(status(409, "Conflict"), 409), Answer({}))
        server.on("PATCH", f"{JOBS}/two", Answer({}))
        starting = starter(transport, *jobs)
        await starting.check()
        assert len(server.requests_of("PATCH", f"{JOBS}/two")) == 1
        await starting.check()
        assert len(server.requests_of("PATCH", f"{JOBS}/one")) == 2
        assert len(server.requests_of("GET", f"{JOBS}/a")) == 1
