from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.cluster import errors
from orchestrator.cluster.eviction import evict
from tests.cluster.fake_api_server import Answer, FakeApiServer, error_answer, pod, status

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport

PATH = "/api/v1/namespaces/team/pods/a"
EVICTION = f"{PATH}/eviction"
BECAUSE = {"muster.dev/eviction-reason": "team-b reclaims its quota"}


def eviction_blocked() -> Answer:
    """Return the API server's answer if a disruption budget forbids the eviction."""
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods"}
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": 429,
        "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [cause]},
    }
    return Answer(body, code=429)


async def evict_it(transport: Transport, *, grace_seconds: int | None = None) -> None:
    await evict(
        transport, namespace="team", name="a", uid="uid-a", annotations=BECAUSE, grace_seconds=grace_seconds
    )


async def test_the_reason_is_written_before_the_pod_is_evicted(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    server.on("POST", EVICTION, Answer(status(201), code=201))
    await evict_it(transport, grace_seconds=5)
    patch, eviction = server.requests
    assert patch.headers["Content-Type"] == "application/merge-patch+json"
    assert patch.body == {"metadata": {"uid": "uid-a", "annotations": BECAUSE}}
    assert eviction.body["kind"] == "Eviction"
    assert eviction.body["deleteOptions"] == {"preconditions": {"uid": "uid-a"}, "gracePeriodSeconds": 5}


async def test_without_a_grace_of_its_own_the_pod_keeps_the_one_it_has(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    server.on("POST", EVICTION, Answer(status(201), code=201))
    await evict_it(transport)
    assert "gracePeriodSeconds" not in server.requests[-1].body["deleteOptions"]


async def test_a_deleted_pod_is_evicted(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", PATH, error_answer(404, "NotFound"))
    await evict_it(transport)
    assert len(server.requests) == 1


async def test_a_pod_deleted_between_the_two_writes_is_evicted(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    server.on("POST", EVICTION, error_answer(404, "NotFound"))
    await evict_it(transport)


@pytest.mark.parametrize(
    "no", [error_answer(409, "Conflict"), error_answer(422, "Invalid", "metadata.uid: immutable")]
)
@pytest.mark.parametrize("now", [Answer(pod("a", uid="another")), error_answer(404, "NotFound")])
async def test_a_pod_whose_name_another_has_taken_is_evicted_and_the_other_is_left_alone(
    server: FakeApiServer, transport: Transport, now: Answer, no: Answer
) -> None:
    server.on("PATCH", PATH, no)
    server.on("GET", PATH, now)
    await evict_it(transport)
    assert not server.requests_of("POST")


async def test_a_conflict_on_the_very_pod_is_raised(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", PATH, error_answer(409, "Conflict"))
    server.on("GET", PATH, Answer(pod("a")))
    with pytest.raises(errors.Conflict):
        await evict_it(transport)


async def test_a_pod_is_not_evicted_without_its_reason(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", PATH, error_answer(403, "Forbidden"))
    with pytest.raises(errors.Forbidden):
        await evict_it(transport)
    assert not server.requests_of("POST")


@pytest.mark.parametrize(
    "no",
    [
        eviction_blocked(),
        error_answer(
            500, "InternalError", "This pod has more than one PodDisruptionBudget, which is not supported"
        ),
    ],
    ids=["forbidden", "several budgets"],
)
async def test_an_eviction_that_a_budget_forbids_is_raised_at_once_and_the_reason_taken_away_again(
    server: FakeApiServer, transport: Transport, no: Answer
) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    server.on("POST", EVICTION, no)
    with pytest.raises(errors.EvictionBlocked):
        await evict_it(transport)
    assert len(server.requests_of("POST")) == 1
    assert server.requests[-1].body == {
        "metadata": {"uid": "uid-a", "annotations": {"muster.dev/eviction-reason": None}}
    }


async def test_a_server_that_sheds_load_is_no_budget(server: FakeApiServer, transport: Transport) -> None:
    server.on("PATCH", PATH, Answer(pod("a")))
    server.on("POST", EVICTION, error_answer(429, "TooManyRequests"))
    with pytest.raises(errors.TooManyRequests):
        await evict_it(transport)
