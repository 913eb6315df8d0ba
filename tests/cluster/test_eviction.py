from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.cluster import errors
from orchestrator.cluster.eviction import evict
from tests.cluster.fake_api_server import Answer, FakeApiServer, pod, refusal, status

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport

PATH = "/api/v1/namespaces/team/pods/a"
STATUS = f"{PATH}/status"


async def evict_it(transport: Transport, *, grace_seconds: int | None = None) -> None:
    await evict(
        transport,
        namespace="team",
        name="a",
        uid="uid-a",
        reason="PreemptionByScheduler",
        message="team-b reclaims its quota",
        grace_seconds=grace_seconds,
        clock=lambda: 1.9,
    )


async def test_the_reason_is_written_before_the_pod_is_deleted(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("PATCH", STATUS, Answer(pod("a")))
    server.on("DELETE", PATH, Answer(status(200)))
    await evict_it(transport, grace_seconds=5)
    patch, delete = server.requests
    assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert patch.body == {
        "metadata": {"uid": "uid-a"},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "team-b reclaims its quota",
                    "lastTransitionTime": "1970-01-01T00:00:01Z",
                }
            ]
        },
    }
    assert (delete.method, delete.body["preconditions"]) == ("DELETE", {"uid": "uid-a"})
    assert delete.body["gracePeriodSeconds"] == 5


async def test_a_pod_that_is_gone_is_evicted(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", STATUS, refusal(404, "NotFound"))
    await evict_it(transport)
    assert len(server.requests) == 1


async def test_a_pod_that_goes_between_the_two_writes_is_evicted(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("PATCH", STATUS, Answer(pod("a")))
    server.on("DELETE", PATH, refusal(404, "NotFound"))
    await evict_it(transport)


@pytest.mark.parametrize("no", [refusal(409, "Conflict"), refusal(422, "Invalid", "metadata.uid: immutable")])
@pytest.mark.parametrize("now", [Answer(pod("a", uid="another")), refusal(404, "NotFound")])
async def test_a_pod_whose_name_another_has_taken_is_evicted_and_the_other_is_left_alone(
    server: FakeApiServer, transport: Transport, now: Answer, no: Answer
) -> None:
    server.on("PATCH", STATUS, no)
    server.on("GET", PATH, now)
    await evict_it(transport)
    assert not server.asked("DELETE")


async def test_a_conflict_on_the_very_pod_is_raised(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", STATUS, refusal(409, "Conflict"))
    server.on("GET", PATH, Answer(pod("a")))
    with pytest.raises(errors.Conflict):
        await evict_it(transport)


async def test_a_pod_is_not_deleted_without_its_reason(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", STATUS, refusal(403, "Forbidden"))
    with pytest.raises(errors.Forbidden):
        await evict_it(transport)
    assert not server.asked("DELETE")
