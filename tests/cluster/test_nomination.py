from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.cluster import errors
from orchestrator.cluster.nomination import annotate, nominate
from tests.cluster.fake_api_server import Answer, FakeApiServer, error_answer, pod

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport

PATH = "/api/v1/namespaces/team/pods/a"


@pytest.mark.parametrize(("node", "devices"), [("n2", "0,1"), (None, None)], ids=["set", "ended"])
async def test_node_and_devices_are_one_write_that_names_the_pods_uid(
    server: FakeApiServer, transport: Transport, node: str | None, devices: str | None
) -> None:
    server.on("PATCH", f"{PATH}/status", Answer(pod("a")))
    await nominate(
        transport, namespace="team", name="a", uid="uid-a", node=node, annotations={"devices": devices}
    )
    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert request.body == {
        "metadata": {"uid": "uid-a", "annotations": {"devices": devices}},
        "status": {"nominatedNodeName": node},
    }


@pytest.mark.parametrize(
    ("no", "error"),
    [(error_answer(404, "NotFound"), errors.NotFound), (error_answer(422, "Invalid"), errors.Invalid)],
)
async def test_a_deleted_pod_or_another_is_an_error(
    server: FakeApiServer, transport: Transport, no: Answer, error: type[Exception]
) -> None:
    server.on("PATCH", PATH, no)
    with pytest.raises(error):
        await annotate(transport, namespace="team", name="a", uid="uid-a", annotations={"place": "n2:0"})
