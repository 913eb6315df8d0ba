"""`snapshot`, `simulate`, `what-if`, `explain` and `why-evicted` through the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from orchestrator.cluster.resources import EVICTION_RECORDS
from orchestrator.control.report.audit import EvictionRecord
from orchestrator.names import SETTINGS_CONFIG_MAP, SYSTEM_NAMESPACE
from orchestrator.planner.settings import Settings
from orchestrator.simulation.settings import KEY as SETTINGS_KEY
from orchestrator.simulation.settings import encoded as encoded_settings
from tests.cli.memory_api_server import pod_of, secret_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
FULL = """
nodes: [{name: dgx1-1, gpus: 4}]
projects:
  team-a: {quota: 2}
  team-b: {quota: 2}
workloads:
  - {name: b-1, project: team-b, gpus: 2, on: dgx1-1}
  - {name: b-2, project: team-b, gpus: 2, on: dgx1-1}
"""


@pytest.fixture
def cluster(server: MemoryApiServer) -> MemoryApiServer:
    """Return a server with two ready nodes of eight GPUs."""
    for name in ("dgx1-1", "dgx1-2"):
        amounts = {"nvidia.com/gpu": "8", "cpu": "80", "memory": "512Gi", "pods": "110"}
        server.add(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
    return server


@pytest.fixture
def full(tmp_path: Path) -> str:
    path = tmp_path / "full.yaml"
    path.write_text(FULL)
    return str(path)


def run_job(
    muster: Muster, server: MemoryApiServer, name: str, gpus: int, *, node: str = "", **status: Any
) -> None:
    """Submit a job to team-a, and let its pod run on a node or stay pending."""
    secret = ("-e", "TOKEN=hunter2", "-e", "KEY=SECRET:vault,key")
    server.add(secret_of("vault", "muster-team-a", key=""))
    assert muster("submit", name, "-i", "image", "-g", str(gpus), *secret).code == 0
    job = server.find("jobs", name, NAMESPACE)
    assert job is not None
    pod = pod_of(job, f"{name}-0", phase="Running" if node else "Pending", node_name=node, **status)
    pod["spec"]["priority"] = 50
    if node:
        pod["metadata"]["annotations"] = pod["metadata"]["annotations"] | {"muster.dev/gpu-devices": "0,1"}
    server.add(pod)


def test_a_snapshot_of_the_cluster_has_all_that_the_planner_needs_and_no_secret(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    run_job(muster, cluster, "one", 2, node="dgx1-1")
    undecided = muster("snapshot")
    assert (undecided.code, undecided.err.count("settings are taken to be the defaults")) == (0, 1)
    metadata = {"name": SETTINGS_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}
    data = {SETTINGS_KEY: encoded_settings(Settings(max_evictions=3))}
    cluster.add({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    out = muster("snapshot")
    document = yaml.safe_load(out.out)
    assert (out.code, out.err) == (0, "")
    assert document["settings"] == {"maxEvictions": 3}
    assert [each["name"] for each in document["nodes"]] == ["dgx1-1", "dgx1-2"]
    assert set(document["projects"]) == {"team-a", "team-b"}
    (workload,) = document["workloads"]
    assert (workload["name"], workload["gpus"], workload["cpu"]) == ("one", 2, 2)
    assert (workload["pods"][0]["on"], workload["pods"][0]["devices"]) == ("dgx1-1", [0, 1])
    for secret in ("hunter2", "TOKEN", "vault", "image", "JOB_NAME"):
        assert secret not in out.out


def test_simulate_reads_a_snapshot_in_yaml_and_in_json(
    muster: Muster, cluster: MemoryApiServer, tmp_path: Path
) -> None:
    run_job(muster, cluster, "one", 2, node="dgx1-1")
    run_job(muster, cluster, "two", 8)
    results = []
    for options in ((), ("--json",)):
        path = tmp_path / "live"
        path.write_text(muster("snapshot", *options).out)
        results.append(muster("simulate", str(path), "--json").json)
    assert results[0] == results[1]
    (started,) = results[0]["wouldRun"]
    assert (started["name"], started["pods"][0]["node"]) == ("two", "dgx1-2")
    assert (results[0]["decisions"], results[0]["stable"]) == (1, False)


def test_a_pod_that_cannot_be_read_is_left_out_with_a_warning(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    spec = {"schedulerName": "muster", "containers": [{"name": "main", "image": "image"}]}
    metadata = {"name": "odd", "namespace": NAMESPACE, "annotations": {"muster.dev/gpu-fraction": "half"}}
    cluster.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    outcome = muster("snapshot")
    assert outcome.code == 0
    assert "Warning: left out: pod muster-team-a/odd: its annotation muster.dev/gpu-fraction" in outcome.err


def test_the_schema_is_printed_without_a_cluster(muster: Muster, server: MemoryApiServer) -> None:
    schema = muster("snapshot", "--schema").json
    assert schema["$ref"] == "#/$defs/SnapshotForm"
    assert server.requests == []


def test_simulate_decides_once_or_until_nothing_changes(muster: Muster, full: str) -> None:
    calm = muster("simulate", full)
    assert (calm.code, calm.lines[-1]) == (0, "Nothing would change.")
    once = muster("simulate", full, "--json").json
    assert (once["decisions"], once["stable"]) == (0, True)


def test_simulate_shows_evictions_by_rule_and_pending_jobs(muster: Muster, full: str, tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    path.write_text(FULL + "  - {name: a-1, project: team-a, gpus: 2}\n")
    result = muster("simulate", str(path), "--until-stable", "--json").json
    (evicted,) = result["wouldBeEvicted"]
    assert (evicted["name"], evicted["rule"], evicted["beneficiary"]) == ("b-2", "quota", "a-1")
    assert [(each["name"], each["new"]) for each in result["wouldWait"]] == [("b-2", True)]
    assert [each["name"] for each in result["wouldRun"]] == ["a-1"]
    assert result["stable"]
    text = muster("simulate", str(path), "--until-stable").out
    assert "Would be evicted:" in text
    assert "team-b   2      4 -> 2" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("simulate", "nothing.yaml"), "nothing.yaml: cannot be read"),
        (("what-if", "--from", "{full}"), "no change is given"),
        (("what-if", "--from", "{full}", "--quota", "team-a"), "give PROJECT=GPUS"),
        (("what-if", "--from", "{full}", "--quota", "team-a=many"), "is no number of GPUs"),
        (("what-if", "--from", "{full}", "--quota", "team-a=+4"), "give the new quota, not the difference"),
        (
            ("what-if", "--from", "{full}", "--quota", "team-a=3"),
            "would refuse this quota: the quotas add up to 5",
        ),
        (
            ("what-if", "--from", "{full}", "--quota", "team-x=1"),
            "there is no project team-x; there are: team-a",
        ),
        (("what-if", "--from", "{full}", "--delete", "b-1"), "the project is missing; give it with -p"),
        (
            ("what-if", "--from", "{full}", "--delete", "team-b/b-9"),
            "team-b has no pending or running workload b-9",
        ),
        (("what-if", "--from", "{full}", "--submit", "x -g 1"), "the project is missing"),
        (("what-if", "--from", "{full}", "--submit", "b-1 -g 1 -p team-b"), "has a workload b-1 already"),
        (("what-if", "--from", "{full}", "--submit", "x -g 1.5 -p team-b"), "-g/--gpu 1.5 is not possible"),
        (("what-if", "--from", "{full}", "--submit", "'x"), "cannot be read: No closing quotation"),
        (("what-if", "--from", "{full}", "--submit", ""), "--submit is empty"),
        (("what-if", "--from", "{full}", "--submit", "x --bad"), "No such option"),
        (("explain", "--from", "{full}", "b-9"), "the file has no workload b-9"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(
    arguments: tuple[str, ...], complaint: str, muster: Muster, full: str, server: MemoryApiServer
) -> None:
    outcome = muster(*(each.format(full=full) for each in arguments))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert complaint in outcome.err
    assert server.requests == []


def test_what_if_on_a_file_asks_no_cluster(muster: Muster, full: str, server: MemoryApiServer) -> None:
    result = muster("what-if", "--from", full, "--submit", "a-1 -g 2", "-p", "team-a", "--json").json
    assert [each["name"] for each in result["wouldRun"]] == ["a-1"]
    assert result["wouldBeEvicted"][0]["rule"] == "quota"
    assert server.requests == []


def test_what_if_does_all_changes_at_once(muster: Muster, full: str) -> None:
    result = muster(
        *("what-if", "--from", full, "--json", "-p", "team-b", "--delete", "b-1"),
        *("--submit", "b-3 -g 1 --interactive", "--quota", "team-a=0", "--quota", "team-b=4"),
    ).json
    assert [each["name"] for each in result["wouldRun"]] == ["b-3"]
    assert result["wouldBeEvicted"] == []
    team_b = result["projects"][1]
    assert team_b["quota"] == {"before": "2", "after": "4"}
    assert team_b["held"] == {"before": "4", "after": "3"}


def test_what_if_compares_with_the_result_without_the_change(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "restless.yaml"
    path.write_text(FULL.replace(", on: dgx1-1}\n  - {name: b-2", "}\n  - {name: b-2"))
    outcome = muster("what-if", "--from", str(path), "--quota", "team-a=1", "--json")
    assert "is not at rest" in outcome.err
    assert (outcome.json["wouldRun"], outcome.json["decisionsBefore"]) == ([], 1)


def test_what_if_on_the_live_cluster_writes_nothing(muster: Muster, cluster: MemoryApiServer) -> None:
    run_job(muster, cluster, "one", 2, node="dgx1-1")
    before = len(cluster.writes())
    result = muster("what-if", "--submit", "two -g 8", "--json").json
    assert [(each["project"], each["name"]) for each in result["wouldRun"]] == [("team-a", "two")]
    assert result["wouldRun"][0]["pods"] == [
        {"name": "two-0", "node": "dgx1-2", "devices": [0, 1, 2, 3, 4, 5, 6, 7]}
    ]
    assert len(cluster.writes()) == before


def test_what_if_without_rights_says_so(muster: Muster, cluster: MemoryApiServer) -> None:
    cluster.refuse("GET", "/api/v1/nodes", 403, "Forbidden")
    outcome = muster("what-if", "--submit", "two -g 8")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "not authorized" in outcome.err


WAITS = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "TooLarge: as written",
}


def test_explain_shows_the_reason_the_project_the_holders_and_the_remedies(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    run_job(muster, cluster, "one", 2, node="dgx1-1")
    run_job(muster, cluster, "nine", 9, conditions=[WAITS])
    answer = muster("explain", "nine", "--json").json
    assert (answer["reason"], answer["writtenByOperator"]) == ("LargerThanAnyNode", "TooLarge: as written")
    assert answer["waiting"] == {"pods": 1, "gpus": "9"}
    assert answer["projects"][0] | {"fairShare": ""} == {
        "name": "team-a",
        "quota": "4",
        "limit": "unlimited",
        "held": "2",
        "fairShare": "",
    }
    assert [(each["name"], each["gpus"], each["nodes"]) for each in answer["holders"]] == [
        ("one", "2", ["dgx1-1"])
    ]
    assert (answer["gpusFree"], answer["gpusTotal"]) == ("14", "16")
    assert answer["wouldFit"] == [{"what": "if it asked for 8 GPUs", "evicts": []}]
    text = muster("explain", "nine").out
    assert "nine of team-a waits: 9 GPUs in 1 pod." in text
    assert "Written by the operator: TooLarge: as written" in text
    assert "- if it asked for 8 GPUs" in text
    assert "Free: 14 of 16 GPUs. The others are held by" in text


def test_explain_says_of_which_moment_its_figures_are(muster: Muster, tmp_path: Path) -> None:
    """The reason is about the cluster after the next decision, and the tables are about the present."""
    path = tmp_path / "taken.yaml"
    path.write_text(
        """
nodes: [{name: n1, gpus: 4}]
projects: {owner: {quota: 4}, guest: {quota: 2}}
workloads:
  - {name: g1, project: guest, gpus: 2, on: n1}
  - {name: g2, project: guest, gpus: 2}
  - {name: big, project: owner, gpus: 4}
"""
    )
    lines = muster("explain", "big", "--from", str(path)).lines
    assert "0 of 4 are free" in lines[1]
    assert lines[2] == (
        "That is after the next decision, which starts guest/g2; the rest shows the present state."
    )
    assert "Free now: 2 of 4 GPUs. The others are held by" in lines
    answer = muster("explain", "big", "--from", str(path), "--json").json
    assert (answer["gpusFree"], answer["gpusFreeAfterDecision"]) == ("2", "0")
    assert (answer["startsOthers"], answer["evictsFrom"]) == (["guest/g2"], [])
    calm = muster("explain", "g1", "--from", str(path)).out
    assert "after the next decision" not in calm


def test_a_reason_that_the_operator_wrote_too_is_said_once(muster: Muster, cluster: MemoryApiServer) -> None:
    run_job(muster, cluster, "nine", 9, conditions=[WAITS])
    answer = muster("explain", "nine", "--json").json
    reason = f"{answer['reason']}: {answer['message']}"
    (pod,) = (pod for pod in cluster.all("pods") if pod["metadata"]["name"].startswith("nine"))
    cluster.add({**pod, "status": {**pod["status"], "conditions": [WAITS | {"message": reason}]}})
    assert muster("explain", "nine").out.count(reason) == 1


def test_explain_without_rights_to_the_cluster_shows_the_operators_message(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    run_job(muster, cluster, "nine", 9, conditions=[WAITS])
    cluster.refuse("GET", "/api/v1/pods", 403, "Forbidden")
    outcome = muster("explain", "nine")
    assert outcome.code == 0
    assert "Written by the operator: TooLarge: as written" in outcome.out
    assert "team-a   4      unlimited  0     0" in outcome.out
    assert "needs rights to read all nodes and pods" in outcome.out


def test_explain_shows_a_member_without_a_right_to_projects_the_operators_message(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    run_job(muster, cluster, "nine", 9, conditions=[WAITS])
    cluster.refuse("GET", "/api/v1/pods", 403, "Forbidden")
    cluster.refuse("GET", "/apis/muster.dev/v1alpha1/projects", 403, "Forbidden")
    outcome = muster("explain", "nine", "-p", "team-a")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Written by the operator: TooLarge: as written" in outcome.out
    assert "QUOTA" not in outcome.out
    assert muster("explain", "nine", "-p", "team-a", "--json").json["projects"] == []


def test_explain_of_a_job_that_runs_or_has_no_pod_says_so(muster: Muster, cluster: MemoryApiServer) -> None:
    run_job(muster, cluster, "one", 2, node="dgx1-1")
    assert muster("explain", "one").lines[0] == "one of team-a runs on dgx1-1."
    muster("submit", "new", "-i", "image", "-g", "1")
    assert "has no pending or running pod" in muster("explain", "new").out
    assert muster("explain", "nothing").code == 1


@pytest.mark.parametrize(
    "written",
    [
        "VolumeNotReady: the claim data of class fast has no volume yet",
        "BackOff: the API server refused its last start on dgx1-1: site policy says no.",
        "Skipped: the operator ended each time it decided on it, so it is set aside",
    ],
)
def test_explain_announces_no_start_that_the_operator_puts_off(
    muster: Muster, cluster: MemoryApiServer, written: str
) -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": written}
    run_job(muster, cluster, "one", 2, conditions=[waits])
    assert muster("explain", "one").lines == [f"one of team-a is pending: {written.rstrip('.')}."]


def test_explain_shows_no_age_of_a_job_that_never_started(muster: Muster, cluster: MemoryApiServer) -> None:
    run_job(muster, cluster, "nine", 9, conditions=[WAITS])
    run_job(muster, cluster, "one", 1, node="dgx1-1")
    row = next(line for line in muster("explain", "nine").lines if "dgx1-1" in line)
    assert row.split() == ["team-a", "one", "1", "-", "yes", "dgx1-1"]


def _status(reason: str, message: str = "") -> dict[str, Any]:
    waiting = {"reason": reason, "message": message}
    return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]}


def _change(cluster: MemoryApiServer, name: str, **changes: dict[str, Any]) -> None:
    (pod,) = (each for each in cluster.all("pods") if each["metadata"]["name"].startswith(name))
    cluster.add({**pod, **{part: pod.get(part, {}) | fields for part, fields in changes.items()}})


def test_explain_get_and_list_say_why_a_job_with_a_node_does_not_run(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    run_job(muster, cluster, "bad", 1, node="dgx1-1")
    _change(cluster, "bad", status=_status("ErrImagePull", "not found"))
    run_job(muster, cluster, "vol", 1, node="dgx1-2")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    _change(cluster, "vol", status=_status("ContainerCreating"), spec={"volumes": [volume]})
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": NAMESPACE, "uid": "u"},
    }
    cluster.add({"apiVersion": "v1", "status": {"phase": "Pending"}, **claim})
    about = {"kind": "PersistentVolumeClaim", "name": "data", "uid": "u"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": NAMESPACE}}
    cluster.add(
        event | {"involvedObject": about, "type": "Warning", "reason": "ProvisioningFailed", "message": "no"}
    )
    image = "ErrImagePull: container main: not found"
    unbound = (
        "VolumeUnbound: PersistentVolumeClaim data without a StorageClass is Pending; ProvisioningFailed: no"
    )
    for name, node, because in (("bad", "dgx1-1", image), ("vol", "dgx1-2", unbound)):
        sentence = f"{name} of team-a is bound to {node} and does not run there: {because}."
        assert muster("explain", name).lines[0] == sentence
        answer = muster("explain", name, "--json").json
        assert (answer["waitsBecause"], answer["runsOn"], answer["writtenByOperator"]) == (because, [], "")
        assert because in muster("get", name).out
        details = muster("get", name, "-o", "json").json
        assert (details["waitsBecause"], details["instances"][0]["waitsBecause"]) == (because, because)
        assert because in muster("list", "-o", "wide").out


def test_explain_says_that_all_pods_of_a_job_are_terminating(
    muster: Muster, cluster: MemoryApiServer
) -> None:
    run_job(muster, cluster, "gone", 1, node="dgx1-1")
    _change(cluster, "gone", metadata={"deletionTimestamp": "2026-01-01T00:00:09Z"})
    assert muster("explain", "gone").lines[0] == (
        "gone of team-a is terminating: 1 pod on dgx1-1 has not ended yet."
    )
    node = cluster.find("nodes", "dgx1-1")
    assert node is not None
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    assert "not ended yet; node dgx1-1: not ready: NodeStatusUnknown." in muster("explain", "gone").lines[0]
    gated = {"schedulingGates": [{"name": "a/b"}]}
    run_job(muster, cluster, "gated", 1)
    _change(cluster, "gated", spec=gated)
    assert "SchedulingGated: it has the scheduling gate a/b" in muster("explain", "gated").out


def test_explain_counts_cordoned_nodes(muster: Muster, cluster: MemoryApiServer) -> None:
    for node in cluster.all("nodes"):
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        node["spec"] = {"unschedulable": True, "taints": [taint]}
    run_job(muster, cluster, "nine", 2)
    lines = muster("explain", "nine").lines
    assert "NoNodeMatches: of 2 nodes none takes its pods: 2 cordoned" in lines
    assert "No node that takes pods has GPUs." in lines


def test_explain_finds_remedies_that_hold_when_they_are_tried(muster: Muster, tmp_path: Path) -> None:
    path = tmp_path / "spare.yaml"
    path.write_text(
        FULL.replace("team-b: {quota: 2}", "team-b: {quota: 0, weight: 2}")
        + "  - {name: a-1, project: team-a, gpus: 4}\n"
    )
    answer = muster("explain", "a-1", "--from", str(path), "--json").json
    whats = {each["what"]: each["evicts"] for each in answer["wouldFit"]}
    assert whats["with a quota of 4 GPUs for team-a"] == ["team-b/b-1", "team-b/b-2"]
    outcome = muster("what-if", "--from", str(path), "--quota", "team-a=4", "--json").json
    assert sorted(each["name"] for each in outcome["wouldBeEvicted"]) == ["b-1", "b-2"]


def eviction(pod: str = "one-0", **changes: Any) -> EvictionRecord:
    values: dict[str, Any] = {
        "at": "2026-01-01T00:00:00.250000Z",
        "project": "team-a",
        "workload": "one",
        "workload_id": "uid",
        "pod": pod,
        "pod_uid": pod,
        "gpu_milli": 2000,
        "node": "dgx1-1",
        "devices": (0, 1),
        "beneficiary": "d-2",
        "beneficiary_project": "team-d",
        "rule": "quota",
        "message": "2 GPUs reclaimed for d-2 of team-d",
    }
    return EvictionRecord(**(values | changes))


def record(server: MemoryApiServer, *evictions: EvictionRecord) -> None:
    """Store these evictions as the operator's records."""
    for each in evictions:
        server.add(
            {
                "apiVersion": EVICTION_RECORDS.api_version,
                "kind": EVICTION_RECORDS.kind,
                "metadata": {"name": f"{each.pod}.{each.pod_uid}", "namespace": NAMESPACE},
                "spec": msgspec.to_builtins(each),
            }
        )


def test_why_evicted_shows_victim_gpus_preemptor_rule_and_time(
    muster: Muster, server: MemoryApiServer
) -> None:
    record(server, eviction(grace_seconds=120), eviction("two-0", workload="two"))
    header, row = muster("why-evicted", "one").lines
    assert header.split() == ["WHEN", "AGE", "POD", "GPUs", "FROM", "TO", "RULE", "GRACE", "BECAUSE"]
    cells = row.split(maxsplit=8)
    assert (cells[0], *cells[2:]) == (
        *("2026-01-01T00:00:00Z", "one-0", "2", "dgx1-1[0,1]", "team-d/d-2", "quota", "120s"),
        "2 GPUs reclaimed for d-2 of team-d",
    )
    (answer,) = muster("why-evicted", "one", "--json").json
    assert (answer["gpus"], answer["devices"], answer["beneficiaryProject"]) == ("2", [0, 1], "team-d")


def test_why_evicted_knows_deleted_jobs_and_refuses_those_that_never_were(
    muster: Muster, server: MemoryApiServer
) -> None:
    record(server, eviction())
    assert muster("why-evicted", "one").code == 0
    outcome = muster("why-evicted", "nothing")
    assert (outcome.code, outcome.out) == (1, "")
    assert "does not exist in project team-a" in outcome.err


def test_why_evicted_of_a_job_that_kept_its_gpus_says_so(muster: Muster) -> None:
    muster("submit", "one", "-i", "image")
    outcome = muster("why-evicted", "one")
    assert outcome.code == 0
    assert outcome.out.startswith("one was not evicted (on record: the last 200 evictions of team-a)")
    assert json.loads(muster("why-evicted", "one", "--json").out) == []
