"""`muster explain` by the reason of the operator, and the cases in which it makes a plan itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.quantity import format_time
from tests.cli.memory_api_server import MemoryApiServer, node
from tests.cli.test_simulation_commands import NAMESPACE, WAITS, run_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome

    Muster = Callable[..., Outcome]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-operator"


def lease(silent_seconds: int = 0, holder: str = "operator-0") -> dict[str, Any]:
    renewed = format_time(time.time_ns() // 1000 - silent_seconds * 1_000_000)
    spec = {"holderIdentity": holder, "renewTime": renewed}
    metadata = {"name": "muster-operator", "namespace": "muster-system"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def lists_nodes(server: MemoryApiServer) -> bool:
    return ("GET", "/api/v1/nodes") in server.requests


def ready(name: str) -> dict[str, Any]:
    made = node(name, 8)
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


@pytest.fixture
def server(server: MemoryApiServer) -> MemoryApiServer:
    """The cluster with ready nodes."""
    server.add(ready("dgx1-1"), ready("dgx1-2"))
    return server


@pytest.fixture
def led(server: MemoryApiServer) -> MemoryApiServer:
    """The cluster with an operator that leads."""
    server.add(lease())
    return server


def test_a_pending_job_is_explained_by_the_reason_of_the_operator(
    muster: Muster, led: MemoryApiServer
) -> None:
    run_job(muster, led, "nine", 9, conditions=[WAITS])
    led.requests.clear()
    assert muster("explain", "nine").lines == [
        "nine of team-a waits: 9 GPUs in 1 pod.",
        "TooLarge: as written",
        "",
        "PROJECT  QUOTA  LIMIT      HELD  FAIR SHARE",
        "team-a   4      unlimited  0     0",
        "",
        "For remedies and the jobs that hold the GPUs: muster explain nine --remedies",
    ]
    assert not lists_nodes(led)
    answer = muster("explain", "nine", "--json").json
    assert (answer["planned"], answer["reason"], answer["message"]) == (False, "TooLarge", "as written")
    assert answer["waiting"] == {"pods": 1, "gpus": "9"}
    assert "wouldFit" not in answer, "without a plan nothing is known of remedies"


def test_other_projects_that_hold_gpus_and_the_parents_are_named(
    muster: Muster, led: MemoryApiServer
) -> None:
    run_job(muster, led, "nine", 9, conditions=[WAITS])
    changes: dict[str, dict[str, Any]] = {
        "team-a": {"spec": {"gpu": {"quota": 4}, "parent": "all"}},
        "team-b": {"status": {"allocatedGpu": 2}},
    }
    for name, parts in changes.items():
        project = led.find("projects", name)
        assert project is not None
        led.add({**project, **parts})
        department = {**project, "spec": {"gpu": {"quota": 9}}, "status": {}}
        led.add(*({**department, "metadata": {"name": other}} for other in ("all", "idle")))
    names = [row["name"] for row in muster("explain", "nine", "--json").json["projects"]]
    assert names == ["team-a", "all", "team-b"]


@pytest.mark.parametrize("flag", [(), ("--remedies",)])
def test_the_option_tries_remedies(flag: tuple[str, ...], muster: Muster, led: MemoryApiServer) -> None:
    run_job(muster, led, "nine", 9, conditions=[WAITS])
    outcome = muster("explain", "nine", *flag)
    assert ("- if it asked for 8 GPUs" in outcome.out) is bool(flag)


@pytest.mark.parametrize("old", [lease(90), lease(holder="")])
def test_without_a_leader_the_rules_are_run(
    old: dict[str, Any], muster: Muster, server: MemoryApiServer
) -> None:
    server.add(old)
    run_job(muster, server, "nine", 9, conditions=[WAITS])
    assert muster("explain", "nine", "--json").json["planned"] is True


def test_a_pod_without_a_reason_is_planned(muster: Muster, led: MemoryApiServer) -> None:
    run_job(muster, led, "nine", 9)
    assert muster("explain", "nine", "--json").json["reason"] == "LargerThanAnyNode"


def test_users_without_a_right_to_the_lease_get_the_written_reason(
    muster: Muster, led: MemoryApiServer
) -> None:
    run_job(muster, led, "nine", 9, conditions=[WAITS])
    led.refuse("GET", LEASE, 403, "Forbidden")
    assert muster("explain", "nine", "--json").json["planned"] is False


MARKED: list[dict[str, Any]] = [
    {"metadata": {"labels": {"muster.dev/unhealthy": "xid-79"}}},
    {"metadata": {"annotations": {"muster.dev/unhealthy-gpus": "0"}}},
    {"metadata": {"annotations": {"muster.dev/failed-gpus": "0"}}},
    {"spec": {"taints": [{"key": "muster.dev/unhealthy", "effect": "NoSchedule"}]}},
    {"status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}}},
    {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
]


@pytest.mark.parametrize("marks", MARKED, ids=str)
def test_a_job_on_a_node_with_any_mark_is_planned_and_no_other(
    marks: dict[str, Any], muster: Muster, server: MemoryApiServer
) -> None:
    run_job(muster, server, "one", 2, node="dgx1-1")
    assert muster("explain", "one", "--json").json["planned"] is False
    marked = ready("dgx1-1")
    for part, fields in marks.items():
        marked[part] = marked.get(part, {}) | fields
    server.add(marked)
    assert muster("explain", "one", "--json").json["planned"] is True


def test_a_job_that_has_ended_needs_neither_plan_nor_leader(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "done", "-i", "image", "-g", "1")
    job = server.find("jobs", "done", NAMESPACE)
    assert job is not None
    server.add({**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    server.requests.clear()
    line = "done of team-a has no pending or running pod: its status is Succeeded."
    assert muster("explain", "done").lines == [line]
    assert not lists_nodes(server)
    assert ("GET", LEASE) not in server.requests
