from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.cluster import errors
from orchestrator.cluster.binding import bind
from tests.cluster.fake_api_server import CUT, Answer, FakeApiServer, error_answer, pod, status

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport

PATH = "/api/v1/namespaces/team/pods/a"
BINDING = f"{PATH}/binding"
DEVICES = {"muster.dev/gpu-devices": "0,1"}


async def bind_it(transport: Transport) -> None:
    await bind(transport, namespace="team", name="a", uid="uid-a", node="dgx-1", annotations=DEVICES)


async def test_a_bind_names_the_pod_by_uid_and_carries_the_annotations(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("POST", BINDING, Answer({"kind": "Status", "status": "Success", "code": 201}, 201))
    await bind_it(transport)
    assert server.requests[0].body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "team", "name": "a", "uid": "uid-a", "annotations": DEVICES},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "dgx-1"},
    }


async def test_a_pod_that_is_bound_just_so_already_is_success(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("POST", BINDING, error_answer(409, "Conflict", "pod a is already assigned to node dgx-1"))
    server.on("GET", PATH, Answer(pod("a", node="dgx-1", annotations={**DEVICES, "other": "x"})))
    await bind_it(transport)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (pod("a", node="dgx-2", annotations=DEVICES), "is bound to dgx-2 already, not to dgx-1"),
        (pod("a", node="dgx-1", annotations={"muster.dev/gpu-devices": "7"}), "with other annotations"),
        (pod("a", uid="other", node="dgx-1", annotations=DEVICES), "is another pod now: its uid is other"),
        (pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), "cannot be bound: .* being deleted"),
    ],
)
async def test_a_conflict_names_its_cause(
    server: FakeApiServer, transport: Transport, found: dict[str, object], message: str
) -> None:
    server.on("POST", BINDING, error_answer(409, "Conflict", "pod a is being deleted"))
    server.on("GET", PATH, Answer(found))
    with pytest.raises(errors.Conflict, match=message):
        await bind_it(transport)


async def test_a_deleted_pod_is_not_found(server: FakeApiServer, transport: Transport) -> None:
    server.on("POST", BINDING, error_answer(404, "NotFound"))
    with pytest.raises(errors.NotFound):
        await bind_it(transport)


async def test_a_pod_deleted_during_a_conflict_is_not_found(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("POST", BINDING, error_answer(409, "Conflict"))
    server.on("GET", PATH, error_answer(404, "NotFound"))
    with pytest.raises(errors.NotFound, match="team/a was deleted"):
        await bind_it(transport)


async def test_a_bind_whose_answer_was_lost_is_not_repeated_by_itself(
    server: FakeApiServer, transport: Transport
) -> None:
    server.on("POST", BINDING, CUT)
    with pytest.raises(errors.Unreachable):
        await bind_it(transport)
    assert len(server.requests) == 1


async def test_a_node_that_the_server_refuses_is_invalid(server: FakeApiServer, transport: Transport) -> None:
    server.on("POST", BINDING, Answer(status(422, "Invalid", "target.name: Required"), 422))
    with pytest.raises(errors.Invalid):
        await bind_it(transport)
