"""The Jobs whose volumes get snapshots, and the written objects: against a scripted API server."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Job, Object, Project
from orchestrator.cluster.transport import Transport
from orchestrator.control.projects.success_snapshots import SuccessSnapshots
from orchestrator.submit.datasets import success_snapshots
from tests.cluster.fake_api_server import Answer, FakeApiServer, access_to, serving, status
from tests.observe.objects import decoded, namespace

NAMESPACE = "muster-team-a"
UID = "0a1b2c3d-0000-4000-8000-000000000000"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train"
SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
WANTED = {"muster.dev/snapshot-on-success": "true"}
COMPLETE = [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]
FAILED = [{"type": "FailureTarget", "status": "True"}, {"type": "Failed", "status": "True"}]
CLAIMS = ("code", "pvc-train-0")


def metadata(**more: Any) -> dict[str, Any]:
    own = {"name": "train", "namespace": NAMESPACE, "uid": UID, "resourceVersion": "7", "annotations": WANTED}
    return own | more


def job(conditions: list[dict[str, str]], *claims: str, uid: str = UID) -> dict[str, Any]:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    volumes.append({"name": "shm", "emptyDir": {}})
    return {
        "metadata": metadata(uid=uid),
        "spec": {"template": {"spec": {"containers": [], "volumes": volumes}}},
        "status": {"conditions": conditions},
    }


def keeper(transport: Transport, jobs: dict[str, Object], *, is_leader: bool = True) -> SuccessSnapshots:
    project = decoded(Project, metadata={"name": "team-a", "uid": "uid-team-a"}, spec={"gpu": {"quota": 1}})
    return SuccessSnapshots(
        transport,
        jobs,
        {"n": namespace(NAMESPACE, "team-a")},
        {"p": project},
        is_leader=lambda: is_leader,
    )


def cached(**more: Any) -> dict[str, Object]:
    return {UID: decoded(Object, metadata=metadata(**more))}


def scripted(server: FakeApiServer, conditions: list[dict[str, str]], *creations: Answer) -> None:
    server.on("GET", JOB, Answer(job(conditions, *CLAIMS)))
    server.on("POST", SNAPSHOTS, *creations or (Answer({}, 201),))
    server.on("PATCH", JOB, Answer({}))


async def test_every_claim_of_a_job_that_succeeded_is_kept_and_named_on_the_job() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        scripted(server, COMPLETE)
        await keeper(transport, cached()).check()
        created = [request.body for request in server.requests_of("POST", SNAPSHOTS)]
        (mark,) = server.requests_of("PATCH", JOB)
    assert [body["metadata"]["name"] for body in created] == ["train-0-0a1b2c3d", "train-1-0a1b2c3d"]
    assert [body["spec"]["source"]["persistentVolumeClaimName"] for body in created] == list(CLAIMS)
    assert all(body["metadata"]["labels"] == {"muster.dev/workload": "train"} for body in created)
    assert mark.body["metadata"] == {
        "uid": UID,
        "annotations": {"muster.dev/snapshots": "train-0-0a1b2c3d,train-1-0a1b2c3d"},
    }


@pytest.mark.parametrize(
    ("conditions", "more", "is_leader"),
    [
        (FAILED, {}, True),
        ([], {}, True),
        (COMPLETE, {"annotations": {}}, True),
        (COMPLETE, {"annotations": WANTED | {"muster.dev/snapshots": "train-0-0a1b2c3d"}}, True),
        (COMPLETE, {"deletionTimestamp": "2026-11-21T10:00:00Z"}, True),
        (COMPLETE, {"namespace": "elsewhere"}, True),
        (COMPLETE, {"uid": "another"}, True),
        (COMPLETE, {}, False),
    ],
)
async def test_nothing_is_kept_of_any_other(
    conditions: list[dict[str, str]], more: dict[str, Any], is_leader: bool
) -> None:
    jobs = {str(more.get("uid", UID)): decoded(Object, metadata=metadata(**more))}
    async with serving() as server, Transport(access_to(server)) as transport:
        scripted(server, conditions)
        await keeper(transport, jobs, is_leader=is_leader).check()
        assert [request.method for request in server.requests if request.method != "GET"] == []


async def test_a_new_leader_finishes_the_work_of_the_one_before() -> None:
    taken = Answer(status(409, "AlreadyExists"), 409)
    async with serving() as server, Transport(access_to(server)) as transport:
        scripted(server, COMPLETE, taken, Answer({}, 201))
        await keeper(transport, cached()).check()
        assert len(server.requests_of("PATCH", JOB)) == 1


async def test_it_is_tried_again_until_it_is_done_and_asked_once_for_each_change() -> None:
    jobs = cached()
    async with serving() as server, Transport(access_to(server)) as transport:
        server.on("GET", JOB, Answer(job([], *CLAIMS)))
        scripted(server, COMPLETE, Answer(status(404, "NotFound"), 404), Answer({}, 201))
        watching = keeper(transport, jobs)
        await watching.check()
        await watching.check()
        assert len(server.requests_of("GET", JOB)) == 1
        jobs |= cached(resourceVersion="8")
        await watching.check()
        assert server.requests_of("PATCH", JOB) == []
        await watching.check()
        assert len(server.requests_of("PATCH", JOB)) == 1


def test_a_claim_that_is_mounted_twice_is_kept_once() -> None:
    manifests = success_snapshots(decoded(Job, **job(COMPLETE, "data", "data")))
    assert [manifest["metadata"]["name"] for manifest in manifests] == ["train-0-0a1b2c3d"]
