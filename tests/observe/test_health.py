"""Table of nodes and the health that the operator reads from them."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Node
from orchestrator.observe.health import NEVER_US, NodeHealth, host_fault, named_gpus, node_health
from orchestrator.observe.snapshot import planner_node
from tests.observe.objects import decoded

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
GONE = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "lastTransitionTime": "2026-11-21T10:00:00Z",
}
TEN_US = 1_795_255_200_000_000


def node(
    allocatable: int = 8, capacity: int = 8, *, ready: dict[str, str] | None = READY, **fields: Any
) -> Node:
    metadata = {"name": "n", **fields.get("metadata", {})}
    return decoded(
        Node,
        metadata=metadata,
        spec=fields.get("spec", {}),
        status={
            "capacity": {"nvidia.com/gpu": str(capacity)},
            "allocatable": {"nvidia.com/gpu": str(allocatable)},
            "conditions": [ready] if ready else [],
        },
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("True", ("memory error -> replace the memory module", TEN_US)),
        ("False", ("", 0)),
        ("Unknown", ("", 0)),
    ],
)
def test_only_a_true_condition_of_the_agent_is_a_fault_of_the_host(
    status: str, expected: tuple[str, int]
) -> None:
    condition = {
        "type": "muster.dev/HostFault",
        "status": status,
        "message": "memory error -> replace the memory module",
        "lastTransitionTime": "2026-11-21T10:00:00Z",
    }
    given = node(ready=condition)
    assert host_fault(given) == expected
    assert host_fault(node()) == ("", 0)
    made = planner_node(given)
    assert (made.host_fault, made.host_fault_since_us) == expected


def annotated(text: str, allocatable: int = 8) -> Node:
    return node(allocatable, metadata={"annotations": {"muster.dev/unhealthy-gpus": text}})


def agreed(by_people: str, by_the_agent: str, allocatable: int = 8) -> Node:
    annotations = {"muster.dev/unhealthy-gpus": by_people, "muster.dev/failed-gpus": by_the_agent}
    return node(allocatable, metadata={"annotations": annotations})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (node(), NodeHealth(8)),
        (node(allocatable=7), NodeHealth(8, lost_gpus=1)),
        (node(allocatable=4, capacity=0), NodeHealth(4)),
        (annotated("3,5"), NodeHealth(8, unhealthy_gpus=(3, 5))),
        (annotated("3", allocatable=7), NodeHealth(8, unhealthy_gpus=(3,))),
        (annotated("3", allocatable=6), NodeHealth(8, unhealthy_gpus=(3,), lost_gpus=1)),
        (agreed("3", "5,3"), NodeHealth(8, unhealthy_gpus=(3, 5))),
        (agreed("", "7", allocatable=7), NodeHealth(8, unhealthy_gpus=(7,))),
        (node(ready=GONE), NodeHealth(8, "not ready: NodeStatusUnknown", TEN_US)),
        (
            node(ready={"type": "Ready", "status": "False"}),
            NodeHealth(8, "not ready", NEVER_US),
        ),
        (node(ready=None), NodeHealth(8, "it has not said that it is ready", NEVER_US)),
        (
            node(metadata={"labels": {"muster.dev/unhealthy": "xid-79"}}),
            NodeHealth(8, "label muster.dev/unhealthy=xid-79"),
        ),
        (node(metadata={"labels": {"muster.dev/unhealthy": "false"}}), NodeHealth(8)),
        (
            node(spec={"taints": [{"key": "muster.dev/unhealthy", "effect": "NoSchedule"}]}, ready=GONE),
            NodeHealth(8, "taint muster.dev/unhealthy"),
        ),
    ],
)
def test_the_health_of_a_node(given: Node, expected: NodeHealth) -> None:
    assert node_health(given) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ()), ("5, 3,3", (3, 5)), ("8", ()), ("-1,x,²,2", (2,)), ("1" * 400, ())],
)
def test_indices_that_the_node_does_not_have_are_left_out(text: str, expected: tuple[int, ...]) -> None:
    assert named_gpus(text, 8) == expected
