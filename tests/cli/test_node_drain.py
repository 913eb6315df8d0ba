"""`muster node drain` and `uncordon` (client/drains.py, simulation/draining.py)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.quantity import format_time
from orchestrator.names import LEASE_NAME, SYSTEM_NAMESPACE
from tests.cli.memory_api_server import node, pod_of
from tests.cli.terminals import terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import JSON, MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
NODE = "/api/v1/nodes/dgx1-1"


def find(server: MemoryApiServer, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
    found: dict[str, Any] | None = server.find(plural, name, namespace)
    assert found is not None
    return found


@pytest.fixture
def site(muster: Muster, server: MemoryApiServer) -> MemoryApiServer:
    """An operator leads; two nodes are ready, and the first has a training job and a notebook."""
    lease = {"holderIdentity": "a", "renewTime": format_time(time.time_ns() // 1000)}
    server.add(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE_NAME, "namespace": SYSTEM_NAMESPACE},
            "spec": lease,
        }
    )
    for name in ("dgx1-1", "dgx1-2"):
        ready = node(name, 8)
        ready["status"] |= {"conditions": [{"type": "Ready", "status": "True"}]}
        ready["status"]["allocatable"]["pods"] = "110"
        server.add(ready)
    muster("submit", "train", "-i", "image", "-g", "2")
    muster("submit", "note", "-i", "image", "-g", "1", "--interactive")
    for plural, name in (("jobs", "train"), ("statefulsets", "note")):
        pod = pod_of(find(server, plural, name, NAMESPACE), f"{name}-0", phase="Running", node_name="dgx1-1")
        pod["metadata"]["uid"] = f"uid-of-{name}-0"
        gpus = "0,1" if name == "train" else "2"
        pod["metadata"]["annotations"] |= {
            "muster.dev/gpu-devices": gpus,
            "muster.dev/admitted": f"uid-of-{name}-0",
        }
        server.add(pod)
    server.requests.clear()
    return server


def end(server: MemoryApiServer, *names: str) -> None:
    """End these pods as soon as the node is marked, as the operator does."""

    def see(token: str, method: str, path: str, body: JSON | None) -> None:
        del token, body
        if (method, path) == ("PATCH", NODE):
            for name in names:
                find(server, "pods", name, NAMESPACE)["status"]["phase"] = "Failed"

    server.admit = see


def rows(outcome: Outcome) -> dict[str, list[str]]:
    """Return the cells of the jobs in the table, by name."""
    lines = (outcome.out + outcome.err).splitlines()
    return {line.split()[1]: line.split() for line in lines if line.startswith("team-a ")}


def test_a_dry_run_shows_where_each_job_would_run_and_changes_nothing(
    muster: Muster, site: MemoryApiServer
) -> None:
    outcome = muster("node", "drain", "dgx1-1", "--dry-run")
    assert outcome.code == 0
    found = rows(outcome)
    assert found["train"][2:6] == ["1", "2", "moves", "dgx1-2"]
    assert found["note"][2:6] == ["1", "1", "stays", "-"]
    assert "note is not preemptible and stays" in outcome.out
    assert site.writes() == []


def test_a_node_is_cordoned_and_marked_until_its_jobs_have_left(
    muster: Muster, site: MemoryApiServer
) -> None:
    end(site, "train-0", "note-0")
    outcome = muster("node", "drain", "dgx1-1", "--timeout", "10s")
    assert outcome.code == 0
    assert outcome.out.endswith("dgx1-1 is drained; 'muster node uncordon dgx1-1' gives it back\n")
    drained = find(site, "nodes", "dgx1-1")
    assert drained["spec"]["unschedulable"] is True
    assert drained["metadata"]["labels"]["muster.dev/unhealthy"] == "drained"
    assert muster("node", "uncordon", "dgx1-1").code == 0
    given_back = find(site, "nodes", "dgx1-1")
    assert "unschedulable" not in given_back["spec"]
    assert "muster.dev/unhealthy" not in given_back["metadata"]["labels"]


def test_the_time_limit_names_the_remaining_jobs_with_the_reason(
    muster: Muster, site: MemoryApiServer
) -> None:
    end(site, "train-0")
    outcome = muster("node", "drain", "dgx1-1", "--timeout", "4s")
    assert outcome.code == 124
    assert "dgx1-1 is not empty after 4 s: note of team-a: dgx1-1 is unhealthy (drained)" in outcome.err
    assert "train of team-a:" not in outcome.err.splitlines()[-1]
    assert find(site, "nodes", "dgx1-1")["spec"]["unschedulable"] is True


def test_force_stops_a_remaining_job_without_a_change_of_its_age(
    muster: Muster, site: MemoryApiServer
) -> None:
    find(site, "statefulsets", "note", NAMESPACE)["status"] = {"replicas": 0}
    end(site, "train-0", "note-0")
    assert muster("node", "drain", "dgx1-1", "--force", "--timeout", "10s").code == 0
    note = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/note"
    assert site.writes() == [("PATCH", NODE), ("PATCH", note), ("PATCH", note)]
    metadata = find(site, "statefulsets", "note", NAMESPACE)["metadata"]
    assert "muster.dev/queued-since" not in metadata["annotations"]


def test_force_shows_which_jobs_it_stops_and_that_nodes_may_change(
    muster: Muster, site: MemoryApiServer
) -> None:
    outcome = muster("node", "drain", "dgx1-1", "--force", "--dry-run")
    found = rows(outcome)
    assert found["train"][4:6] == ["moves", "dgx1-2"]
    assert found["note"][4:6] == ["stopped", "-"]
    assert "note: stopped, and pending with the present age in the queue" in outcome.err
    assert "may get a node that is shown for another job" in outcome.err
    assert "shown for another job" not in muster("node", "drain", "dgx1-1", "--dry-run").err
    assert site.writes() == []


def test_an_interrupted_drain_names_the_state_of_the_node_and_both_ways_on(
    site: MemoryApiServer, kubeconfig: Path
) -> None:
    with terminal(kubeconfig, "node", "drain", "dgx1-1", "--yes", "--timeout", "1h", columns=250) as person:
        person.see(b"note of team-a: 1 pod, not evicted yet")
        person.type(b"\x03")
        person.see(
            b"dgx1-1 is cordoned, and its jobs leave as soon as they can. 'muster node drain dgx1-1' waits for them "
            b"again, and 'muster node uncordon dgx1-1' ends the drain"
        )
        person.see(b"interrupted")
        assert person.exit_code() == 130
    assert find(site, "nodes", "dgx1-1")["spec"]["unschedulable"] is True
    assert find(site, "nodes", "dgx1-1")["metadata"]["labels"]["muster.dev/unhealthy"] == "drained"


def test_an_interrupted_question_changes_nothing(site: MemoryApiServer, kubeconfig: Path) -> None:
    with terminal(kubeconfig, "node", "drain", "dgx1-1", columns=250) as person:
        person.see(b"2 jobs will leave dgx1-1. Continue?")
        person.type(b"\x03")
        person.see(b"interrupted")
        assert person.exit_code() == 130
    assert site.writes() == []


def test_the_answer_for_programs_has_every_job(muster: Muster, site: MemoryApiServer) -> None:
    daemon: JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d", "namespace": "kube-system"}}
    site.add({**daemon, "spec": {"nodeName": "dgx1-1", "containers": []}, "status": {"phase": "Running"}})
    record = muster("node", "drain", "dgx1-1", "--dry-run", "-o", "json").json
    assert (record["node"], record["drained"], record["otherPods"]) == ("dgx1-1", None, 1)
    assert [(job["name"], job["gpus"], job["outcome"]) for job in record["jobs"]] == [
        ("note", "1", "stays"),
        ("train", "2", "moves"),
    ]
    end(site, "train-0")
    outcome = muster("node", "drain", "dgx1-1", "--timeout", "3s", "-o", "json")
    assert (outcome.code, outcome.json["drained"]) == (124, False)


def test_without_an_operator_nothing_is_changed(muster: Muster, site: MemoryApiServer) -> None:
    find(site, "leases", LEASE_NAME, SYSTEM_NAMESPACE)["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    outcome = muster("node", "drain", "dgx1-1")
    assert outcome.code == 1
    assert "without it no job leaves dgx1-1" in outcome.err
    assert site.writes() == []


def test_a_mark_of_a_person_is_neither_replaced_nor_removed(muster: Muster, site: MemoryApiServer) -> None:
    find(site, "nodes", "dgx1-2")["metadata"]["labels"]["muster.dev/unhealthy"] = "xid-79"
    assert muster("node", "drain", "dgx1-2").code == 0
    assert find(site, "nodes", "dgx1-2")["metadata"]["labels"]["muster.dev/unhealthy"] == "xid-79"
    outcome = muster("node", "uncordon", "dgx1-2")
    assert outcome.code == 0
    assert "dgx1-2 is still marked unhealthy (xid-79)" in outcome.err
    assert find(site, "nodes", "dgx1-2")["metadata"]["labels"]["muster.dev/unhealthy"] == "xid-79"


@pytest.mark.parametrize("command", ["drain", "uncordon"])
@pytest.mark.parametrize("name", ["nowhere", "", "dgx1-1/status", "../pods"])
def test_a_node_that_there_is_not_is_named(
    name: str, command: str, muster: Muster, site: MemoryApiServer
) -> None:
    outcome = muster("node", command, name)
    assert outcome.code == 1
    assert f"there is no node {name}; " in outcome.err
    assert site.writes() == []


def test_a_right_that_is_missing_is_named(muster: Muster, site: MemoryApiServer) -> None:
    site.refuse("PATCH", NODE, 403, "Forbidden")
    outcome = muster("node", "drain", "dgx1-1")
    assert outcome.code == 1
    assert "muster-cluster-admin" in outcome.err


def test_the_host_of_a_node_is_removed_by_the_same_group(muster: Muster) -> None:
    outcome = muster("node", "--help")
    assert all(name in outcome.out for name in ("drain", "uncordon", "remove"))
    assert "--lost" in muster("node", "remove", "--help").out
