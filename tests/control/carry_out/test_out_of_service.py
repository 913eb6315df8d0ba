"""The taint `out-of-service`: when the operator sets and removes it, and on how many nodes; on a server in memory."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Node
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.out_of_service import OutOfService
from tests.cluster.fake_api_server import Answer, Request, access_to, error_answer, serving
from tests.observe.objects import decoded

KEY = "node.kubernetes.io/out-of-service"
OURS = {"key": KEY, "value": "muster", "effect": "NoExecute"}
THEIRS = {"key": KEY, "value": "nodeshutdown", "effect": "NoExecute"}
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
NOW_US = time_us("2026-11-27T12:00:00Z")


def node(name: str, since: str = "11:40:00", *taints: dict[str, str], status: str = "Unknown") -> Node:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": f"2026-11-27T{since}Z"}
    return decoded(
        Node,
        metadata={"name": name, "uid": name, "resourceVersion": "7"},
        spec={"taints": list(taints)},
        status={"conditions": [condition]},
    )


async def patched(*nodes: Node, most: int = 1, leads: bool = True, answer: Answer | None = None) -> list[Any]:
    """Return the changed nodes, each with its changes."""
    done: list[Any] = []

    def note(request: Request) -> Answer:
        test, *change = request.body
        assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
        assert request.headers["Content-Type"] == "application/json-patch+json"
        done.append((request.path.rpartition("/")[2], change))
        return answer or Answer({"metadata": {}})

    async with serving() as server:
        for each in nodes:
            server.on("PATCH", f"/api/v1/nodes/{each.metadata.name}", note)
        async with Transport(access_to(server)) as transport:
            await OutOfService(
                transport,
                {each.metadata.uid: each for each in nodes},
                after_seconds=600,
                max_nodes=most,
                now_us=lambda: NOW_US,
                is_leader=lambda: leads,
            ).check()
    return done


ADDED = [{"op": "add", "path": "/spec/taints", "value": [OURS]}]
APPENDED = [{"op": "add", "path": "/spec/taints/-", "value": OURS}]


@pytest.mark.parametrize(
    ("nodes", "most", "expected"),
    [
        ([node("a")], 1, [("a", ADDED)]),
        ([node("a", "11:40:00", UNREACHABLE)], 1, [("a", APPENDED)]),
        ([node("a", "11:50:00")], 1, [("a", ADDED)]),
        ([node("a", "11:50:01")], 1, []),
        ([node("a", status="False")], 1, [("a", ADDED)]),
        ([node("a", status="True")], 1, []),
        ([node("a", "soon")], 1, []),
        ([node("a", "11:40:00", THEIRS)], 1, []),
        ([node("a"), node("b", "11:30:00"), node("c")], 1, [("b", ADDED)]),
        ([node("a"), node("b", "11:30:00"), node("c")], 2, [("b", ADDED), ("a", ADDED)]),
        ([node("a"), node("b", "11:30:00", THEIRS)], 1, []),
        ([node("a"), node("b", "11:30:00", OURS)], 2, [("a", ADDED)]),
        ([node("a")], 0, []),
    ],
)
async def test_the_nodes_that_are_not_ready_the_longest_are_tainted_up_to_the_bound(
    nodes: list[Node], most: int, expected: list[Any]
) -> None:
    assert await patched(*nodes, most=most) == expected


async def test_a_node_that_is_ready_again_loses_the_operators_taint_only() -> None:
    ours = node("a", "11:59:00", UNREACHABLE, OURS, status="True")
    theirs = node("b", "11:59:00", THEIRS, status="True")
    test = {"op": "test", "path": "/spec/taints/1/key", "value": KEY}
    assert await patched(ours, theirs) == [("a", [test, {"op": "remove", "path": "/spec/taints/1"}])]


async def test_a_refused_taint_stops_nothing_and_a_replica_that_stands_by_sets_none() -> None:
    refused = error_answer(403, "Forbidden", "no")
    assert [name for name, _ in await patched(node("a"), node("b"), most=2, answer=refused)] == ["a", "b"]
    assert await patched(node("a"), leads=False) == []
