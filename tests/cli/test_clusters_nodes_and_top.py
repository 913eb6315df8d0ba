"""The commands about the cluster itself: `list nodes`, `get node`, `top`, `cluster`, `config project`."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.client.nodes import while_some_answer
from tests.cli.memory_api_server import node, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"


@pytest.fixture
def busy(muster: Callable[..., Outcome], server: MemoryApiServer) -> MemoryApiServer:
    """Yield a cluster: on dgx1-1, whose kubelet answers, run jobs of two GPUs and of half a
    GPU; dgx1-2 has lost a GPU.
    """
    muster("submit", "pair", "-i", "image", "-g", "2", "--cpu", "4", "--memory", "8Gi")
    muster("submit", "half", "-i", "image", "-g", "0.5")
    for name in ("pair", "half"):
        job = server.find("jobs", name, NAMESPACE)
        assert job is not None
        server.add(pod_of(job, f"{name}-abc", phase="Running", node_name="dgx1-1"))
    first, second = server.find("nodes", "dgx1-1"), server.find("nodes", "dgx1-2")
    assert first is not None
    assert second is not None
    first["metadata"]["labels"] = {
        "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB",
        "nvidia.com/gpu.memory": "32768",
        "run.ai/type": "dgx1",
        "node-role.kubernetes.io/worker": "",
    }
    first["status"] |= {
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "80", "memory": "512Gi"},
        "addresses": [{"type": "InternalIP", "address": "10.61.218.152"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    second["status"]["allocatable"] = {"nvidia.com/gpu": "7"}
    pair = server.find("pods", "pair-abc", NAMESPACE)
    assert pair is not None
    server.summaries["dgx1-1"] = {
        "node": {
            "nodeName": "dgx1-1",
            "cpu": {"usageNanoCores": 1_500_000_000},
            "memory": {"workingSetBytes": 3 << 30},
        },
        "pods": [
            {
                "podRef": {"uid": pair["metadata"]["uid"]},
                "cpu": {"usageNanoCores": 250_000_000},
                "memory": {"workingSetBytes": 1536 << 20},
            }
        ],
    }
    return server


def test_no_more_is_shown_as_allocated_than_the_node_has_and_no_devices_that_were_forged(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    pair = busy.find("pods", "pair-abc", NAMESPACE)
    assert pair is not None
    greedy = json.loads(json.dumps(pair))
    greedy["metadata"] |= {"name": "greedy", "uid": "g", "annotations": {"muster.dev/gpu-devices": "0,1"}}
    greedy["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    forged = json.loads(json.dumps(pair))
    forged["metadata"] |= {"name": "forged", "uid": "f", "annotations": {"muster.dev/gpu-devices": "0,1,2"}}
    forged["spec"]["containers"][0]["resources"] = {}
    busy.add(greedy, forged)
    shown = muster("get", "node", "dgx1-1", "-o", "json").json
    assert shown["gpusAllocated"] == "8"
    pods = {pod["name"]: (pod["gpus"], pod["gpuDevices"]) for pod in shown["pods"]}
    assert sum(float(gpus) for gpus, _ in pods.values()) == 8
    assert pods["forged"] == ("0", "")
    assert {devices for _, devices in pods.values()} == {""}, "muster bound none of them"


@pytest.mark.parametrize("words", [("list", "nodes"), ("list", "node")])
def test_nodes_are_listed_with_allocated_and_free_amounts(
    words: tuple[str, ...], busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    outcome = muster(*words)
    assert outcome.lines[0].split("  ")[0] == "NAME"
    assert "GPU ALLOCATABLE  GPU FREE" in outcome.lines[0]
    first = "dgx1-1 ready 10.61.218.152 worker 80 4.5 512Gi 8Gi Tesla-V100-SXM2-32GB 8 5.5"
    assert outcome.lines[1].split() == first.split()
    assert outcome.lines[2].split()[:2] == ["dgx1-2", "notReady"]
    assert outcome.lines[2].split()[-2:] == ["7", "0"], "no new pod gets GPUs of a node that is not ready"
    assert muster("list", "nodes", "-o", "name").out == "dgx1-1\ndgx1-2\n"
    assert muster("list", "nodes", "--no-headers").lines[0].startswith("dgx1-1")


def test_top_node_has_the_columns_and_the_total_of_the_paper(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    lines = muster("top", "node").lines
    header = ["NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)", "GPU(Unhealthy)"]
    assert lines[0].split()[:7] == header
    first = "dgx1-1 10.61.218.152 worker ready 8 2.5 0 80 1.5 512Gi 3Gi"
    assert lines[1].split() == first.split()
    assert lines[2].split() == ["dgx1-2", "-", "<none>", "notReady", "8", "0", "1", "0", "-", "0", "-"]
    assert set(lines[3]) == {"-"}
    assert lines[4:] == ["Allocated/Total GPUs In Cluster:", "2.5/16 (15%)"]


def test_top_node_with_details_shows_the_pods_of_each_node(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    out = muster("top", "nodes", "-d").out
    assert "NAME: dgx1-1" in out
    assert "Allocated GPUs In Node dgx1-1: 2.5" in out
    assert any(line.split()[:3] == [NAMESPACE, "pair-abc", "2"] for line in out.splitlines())


def test_top_job_tells_requested_held_and_used_amounts_and_a_dash_without_a_measurement(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    muster("submit", "waits", "-i", "image", "-g", "8")
    lines = muster("top", "jobs").lines
    rows = {line.split()[0]: line.split() for line in lines[1:4]}
    assert rows["pair"][:5] == ["pair", "team-a", "2", "2", "Running"]
    assert rows["pair"][-3:] == ["dgx1-1", "0.25", "1.5Gi"]
    assert rows["half"][2:4] == ["0.5", "0.5"]
    assert rows["half"][-2:] == ["-", "-"]
    assert rows["waits"][2:5] == ["8", "0", "Pending"]
    assert lines[4:] == ["Total Allocated GPUs: 2.5", "Total Requested GPUs: 10.5"]
    by_name = {each["name"]: each for each in muster("top", "job", "-o", "json").json}
    assert by_name["half"]["memoryBytesUsed"] is None
    assert by_name["pair"]["memoryBytesUsed"] == 1536 << 20


def test_top_job_leaves_ended_jobs_out_of_rows_and_sums(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    def lines_without_ages() -> list[str]:
        return [re.sub(r" [0-9]+s ", " ", line) for line in muster("top", "job").lines]

    before = lines_without_ages()
    for name, condition in (("done", "Complete"), ("broken", "Failed")):
        muster("submit", name, "-i", "image", "-g", "4")
        job = busy.find("jobs", name, NAMESPACE)
        assert job is not None
        busy.add({**job, "status": {"conditions": [{"type": condition, "status": "True"}]}})
    assert lines_without_ages() == before
    assert [
        job["name"] for job in muster("top", "job", "-o", "json").json if job["gpusRequested"] == "4"
    ] == []


def test_unhealthy_gpus_are_named_by_their_index(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    first = busy.find("nodes", "dgx1-1")
    assert first is not None
    assert "UNHEALTHY GPUS: 1 (1 of unknown index)" in muster("get", "node", "dgx1-2").lines
    first["metadata"]["annotations"] = {"muster.dev/unhealthy-gpus": "5", "muster.dev/failed-gpus": "3"}
    assert "UNHEALTHY GPUS: 2 (GPU 3,5)" in muster("get", "node", "dgx1-1").lines
    first["status"]["capacity"]["nvidia.com/gpu"] = "11"
    assert "UNHEALTHY GPUS: 3 (GPU 3,5 and 1 of unknown index)" in muster("get", "node", "dgx1-1").lines
    assert any("3 (GPU 3,5 and" in line for line in muster("list", "nodes", "-o", "wide").lines)
    assert muster("get", "node", "dgx1-1", "-o", "json").json["gpuIndexesUnhealthy"] == [3, 5]


def test_a_fault_of_a_host_is_named_with_its_repair(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    first = busy.find("nodes", "dgx1-1")
    assert first is not None
    assert "host fault" not in muster("top", "node").out
    fault = "memory error (2 times) -> replace the memory module"
    condition = {"type": "muster.dev/HostFault", "status": "True", "message": fault}
    first["status"].setdefault("conditions", []).append(condition)
    assert f"1 node reports a host fault:\ndgx1-1: {fault}\n" in muster("top", "node").out
    assert f"HOST FAULT: {fault}" in muster("get", "node", "dgx1-1").lines
    assert muster("top", "node", "-o", "json").json[0]["hostFault"] == fault
    condition["status"] = "Unknown"
    assert "host fault" not in muster("top", "node").out


def test_a_job_is_shown_with_its_gpus_without_an_agent(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    pair, half = (busy.find("pods", f"{name}-abc", NAMESPACE) for name in ("pair", "half"))
    assert pair is not None
    assert half is not None
    pair["metadata"].setdefault("annotations", {}).update(
        {"muster.dev/gpu-devices": "3,5", "muster.dev/admitted": pair["metadata"]["uid"]}
    )
    half["metadata"].setdefault("annotations", {})["muster.dev/gpu-devices"] = "7"  # not by the operator
    assert "GPU DEVICES: dgx1-1:3,5" in muster("get", "pair").lines
    assert "GPU DEVICES" not in muster("get", "half").out
    rows = muster("list", "--columns", "gpu devices,name", "--sort", "name", "--no-headers").lines
    assert [line.split() for line in rows] == [["-", "half"], ["dgx1-1:3,5", "pair"]]


def test_the_figures_of_another_node_behind_one_address_are_not_taken(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    busy.summaries["dgx1-2"] = busy.summaries["dgx1-1"]
    assert muster("top", "node").lines[2].split()[-3:] == ["-", "0", "-"]


def test_a_user_without_a_right_to_ask_kubelets_is_told_so_and_sees_the_rest(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    for name in ("dgx1-1", "dgx1-2"):
        busy.refuse("GET", f"/api/v1/nodes/{name}/proxy/stats/summary", 403, "Forbidden")
    outcome = muster("top", "node")
    assert outcome.code == 0
    assert "nodes/proxy" in outcome.err
    assert outcome.lines[1].split()[5] == "2.5"


def test_a_user_without_a_right_to_nodes_still_sees_the_use_of_their_jobs(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    busy.refuse("GET", "/api/v1/nodes", 403, "Forbidden")
    outcome = muster("top", "job")
    assert (outcome.code, outcome.err.count("\n")) == (0, 1)
    assert outcome.lines[-2] == "Total Allocated GPUs: 2.5"


def test_memory_of_a_gpu_is_shown_as_asked_and_counted_by_the_node(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    spec = {
        "schedulerName": "muster",
        "nodeName": "dgx1-1",
        "containers": [{"name": "main", "image": "image"}],
    }
    annotations = {"muster.dev/gpu-memory": "8Gi", "muster.dev/gpu-fraction-devices": "2"}
    metadata = {"name": "memory", "namespace": NAMESPACE, "annotations": annotations}
    busy.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    (listed,) = (line for line in muster("list").lines if line.startswith("memory"))
    assert listed.split()[8] == "2x8Gi"
    described = muster("get", "memory").lines
    assert {"GPU MEMORY: 2x8Gi", "ALLOCATED GPU MEMORY: 2x8Gi"} <= set(described)
    assert not any(line.startswith(("GPUS:", "ALLOCATED GPUS:")) for line in described)
    assert muster("get", "memory", "-o", "json").json["gpuMemoryAllocated"] == "2x8Gi"
    assert muster("top", "node").lines[1].split()[5] == "3"
    job = next(line for line in muster("top", "job").lines if line.startswith("memory"))
    assert job.split()[2:4] == ["2x8Gi", "0.5"]


def test_a_part_of_a_gpu_by_a_claim_counts_as_that_part(
    busy: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    before = muster("get", "node", "dgx1-1", "-o", "json").json["gpusAllocated"]
    spec = {
        "schedulerName": "muster",
        "nodeName": "dgx1-1",
        "containers": [{"name": "main", "image": "image"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "part"}],
    }
    annotations = {
        "muster.dev/gpu-fraction": "0.25",
        "muster.dev/gpu-devices": "7",
        "muster.dev/admitted": "uid-of-part",
    }
    metadata = {"name": "part", "uid": "uid-of-part", "namespace": NAMESPACE, "annotations": annotations}
    busy.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    after = muster("get", "node", "dgx1-1", "-o", "json").json["gpusAllocated"]
    assert Decimal(after) - Decimal(before) == Decimal("0.25")


def test_one_node_is_described_with_its_pods(busy: MemoryApiServer, muster: Callable[..., Outcome]) -> None:
    for words in (("get", "node", "dgx1-1"), ("describe", "node", "dgx1-1")):
        lines = muster(*words).lines
        assert "GPU TYPE: Tesla-V100-SXM2-32GB" in lines
        assert "GPU MEMORY: 32Gi" in lines
        assert "USED CPUS: 1.5" in lines
        assert any(line.split()[1:3] == ["pair-abc", "2"] for line in lines)
    assert muster("get", "node", "dgx1-1", "-o", "json").json["gpusAllocated"] == "2.5"
    outcome = muster("describe", "node", "nobody")
    assert (outcome.code, outcome.out) == (1, "")
    assert "muster list nodes" in outcome.err


@pytest.mark.parametrize("words", [("list", "clusters"), ("list", "cluster"), ("cluster", "list")])
def test_clusters_are_the_contexts_of_the_kubeconfig(
    words: tuple[str, ...], kubeconfig: Path, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    _add_context(kubeconfig)
    assert muster(*words).lines == [
        "Configured clusters on this computer are:",
        "CLUSTER        CURRENT PROJECT",
        "lab (current)  team-a",
        "other          -",
    ]
    assert server.requests == []
    assert [each["name"] for each in muster(*words, "-o", "json").json] == ["lab", "other"]


@pytest.mark.parametrize("words", [("cluster", "set"), ("config", "cluster")])
def test_another_cluster_is_chosen_in_the_kubeconfig(
    words: tuple[str, ...], kubeconfig: Path, muster: Callable[..., Outcome]
) -> None:
    _add_context(kubeconfig)
    kubeconfig.chmod(0o640)
    before = yaml.safe_load(kubeconfig.read_text())
    outcome = muster(*words, "other")
    assert (outcome.code, outcome.out) == (0, "Cluster other has been set as current cluster\n")
    assert yaml.safe_load(kubeconfig.read_text()) == before | {"current-context": "other"}
    assert kubeconfig.stat().st_mode & 0o777 == 0o640
    refused = muster(*words, "nowhere")
    assert refused.code == 1
    assert "lab, other" in refused.err
    assert yaml.safe_load(kubeconfig.read_text())["current-context"] == "other"


def test_the_default_project_is_chosen_in_both_generations_spelling(muster: Callable[..., Outcome]) -> None:
    for words in (("project", "set", "team-b"), ("config", "project", "team-b")):
        muster("project", "set", "team-a")
        assert muster(*words).out == "Project team-b has been set as default project\n"
        assert muster("list").lines[0] == "Showing jobs for project team-b"


def test_projects_are_listed_and_described(muster: Callable[..., Outcome]) -> None:
    for words in (("list", "projects"), ("list", "project"), ("project", "list")):
        assert [line.split()[0] for line in muster(*words).lines] == ["PROJECT", "team-a", "team-b"]
    assert muster("list", "projects", "-o", "name").out == "team-a\nteam-b\n"
    assert "DESERVED GPUs: 4" in muster("describe", "project", "team-a").lines
    assert muster("describe", "project", "nobody").code == 1


def _add_context(kubeconfig: Path) -> None:
    document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    document["contexts"].append({"name": "other", "context": {"cluster": "lab", "user": "lab"}})
    kubeconfig.write_text(yaml.safe_dump(document))


NOT_IN_FORCE = (
    "The policies are NOT in force: this cluster has none of them: apply the output of 'muster "
    "operator-yaml'."
)


def test_objects_that_no_decision_counts_are_listed(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("cluster", "status")
    assert (outcome.code, outcome.lines) == (1, [NOT_IN_FORCE])
    assert "muster-system/muster-skipped" in outcome.err
    objects = [
        {
            "kind": "Pod",
            "namespace": "muster-team-a",
            "name": "odd",
            "why": "its annotation is odd",
            "since": "2026-11-22T10:00:00Z",
        },
        {"kind": "Node", "namespace": "", "name": "n-1", "why": "x", "since": "2026-11-22T10:00:01Z"},
    ]
    text = json.dumps({"objects": objects, "more": 2, "leftOver": 3})
    metadata = {"name": "muster-skipped", "namespace": "muster-system"}
    server.add(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"skipped.json": text},
        }
    )
    assert muster("cluster", "status").lines == [
        NOT_IN_FORCE,
        "Objects that the scheduler skips or counts differently:",
        "KIND  NAMESPACE      NAME  SINCE                 REASON",
        "Pod   muster-team-a  odd   2026-11-22T10:00:00Z  its annotation is odd",
        "Node  -              n-1   2026-11-22T10:00:01Z  x",
        "and 2 more",
        "The last decision did not reach 3 workloads: they are first in the next.",
    ]
    assert muster("cluster", "status", "--no-headers").lines[0].startswith("Pod ")
    programs = muster("cluster", "status", "-o", "json").json
    assert (programs["objects"], programs["policies"]["inForce"]) == (objects, False)
    assert muster("cluster", "status", "-o", "name").out == "muster-team-a/odd\nn-1\n"


GIB = 1024


@pytest.fixture
def watched(busy: MemoryApiServer) -> MemoryApiServer:
    """Add an agent on dgx1-1: pair computes on GPU 3, and GPU 5 has been idle for an hour; GPU 7 has failed."""
    pair = busy.find("pods", "pair-abc", NAMESPACE)
    half = busy.find("pods", "half-abc", NAMESPACE)
    assert pair is not None
    assert half is not None
    now = datetime.now(UTC)
    hour_ago = (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    holder = {"namespace": NAMESPACE, "pod": "pair-abc", "container": "main"}
    user = {"podUid": half["metadata"]["uid"], "containerId": "c", "memoryMib": 2 * GIB}
    gpus: list[dict[str, Any]] = [
        {
            "index": index,
            "uuid": f"GPU-{index}",
            "memoryMib": 32 * GIB,
            "memoryUsedMib": 0,
            "utilizationPercent": 0,
        }
        for index in range(8)
    ]
    gpus[3] |= {"holders": [holder], "memoryUsedMib": 8 * GIB, "utilizationPercent": 90}
    gpus[5] |= {"holders": [holder], "idleSince": hour_ago}
    gpus[6] |= {"users": [user], "memoryUsedMib": 3 * GIB, "utilizationPercent": 10}
    gpus[7] |= {"failure": "xid-79"}
    busy.add(
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "GpuNode",
            "metadata": {"name": "dgx1-1"},
            "spec": {"observedAt": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "gpus": gpus},
        }
    )
    return busy


def test_top_node_adds_the_agents_measurements_behind_the_columns_of_the_paper(
    watched: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    lines = muster("top", "node").lines
    assert lines[0].split()[6:] == [
        "GPU(Unhealthy)", "CPU(Total)", "CPU(Used)", "MEMORY(Total)", "MEMORY(Used)",
        "GPU(Utilization)", "GPUMEMORY(Total)", "GPUMEMORY(Used)", "GPU(Idle)",
    ]  # fmt: skip
    assert lines[1].split()[-4:-1] == ["13%", "256Gi", "11Gi"]
    assert lines[1].split()[-1].startswith("01:00:")
    assert lines[2].split()[-4:] == ["-"] * 4
    out = muster("top", "node", "-d").out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if "GPU-" in line}
    assert rows["3"] == ["3", "90%", "32Gi", "8Gi", "-", "healthy", "GPU-3", f"{NAMESPACE}/pair-abc"]
    assert rows["7"][5:] == ["xid-79", "GPU-7"]
    (first, _) = muster("top", "node", "-o", "json").json
    assert first["gpuDetails"][3]["uuid"] == "GPU-3"


def test_top_job_tells_the_use_of_its_gpus_and_with_details_of_each(
    watched: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    rows = {line.split()[0]: line.split() for line in muster("top", "job").lines[1:3]}
    assert rows["pair"][-4:-1] == ["45%", "64Gi", "8Gi"]
    assert rows["pair"][-1].startswith("01:00:")
    assert rows["half"][-4:] == ["10%", "32Gi", "2Gi", "-"], "of the 3 GiB in use 2 are its own"
    out = muster("top", "job", "-d").out
    assert any(line.split()[:3] == ["dgx1-1", "5", "0%"] and "GPU-5" in line for line in out.splitlines())
    by_name = {job["name"]: job for job in muster("top", "job", "-o", "json").json}
    assert [gpu["uuid"] for gpu in by_name["pair"]["gpuDetails"]] == ["GPU-3", "GPU-5"]
    assert by_name["half"]["gpuMemoryBytesUsed"] == 2 << 30


def test_a_job_and_a_node_are_shown_with_the_uuids_of_their_gpus(
    watched: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    out = muster("get", "pair").out
    assert "GPUs:\nNODE" in out
    assert "GPU-3" in out
    assert "GPU-6" not in out
    assert [gpu["index"] for gpu in muster("describe", "job", "pair", "-o", "json").json["gpuDetails"]] == [
        3,
        5,
    ]
    node = muster("get", "node", "dgx1-1").out
    assert "xid-79" in node
    assert "GPU-6" in node
    (line,) = [line for line in muster("list", "-o", "wide").lines if line.startswith("pair ")]
    assert "dgx1-1:3,5" in line
    jobs = muster("list", "-o", "json").json
    listed = {job["name"]: [gpu["uuid"] for gpu in job["gpuDetails"]] for job in jobs}
    assert listed == {"pair": ["GPU-3", "GPU-5"], "half": ["GPU-6"]}


def test_a_user_without_a_right_to_single_gpus_sees_the_rest(
    watched: MemoryApiServer, muster: Callable[..., Outcome]
) -> None:
    watched.refuse("GET", "/apis/muster.dev/v1alpha1/gpunodes", 403, "Forbidden")
    assert "GPU-3" not in muster("get", "pair").out
    assert muster("list", "-o", "wide").code == 0
    assert "GPU(Utilization)" not in muster("top", "node").out


def test_silent_kubelets_cost_one_wait_together(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.add(*(node(f"dgx1-{number}", 8) for number in range(1, 41)))
    server.summaries["dgx1-1"] = {"node": {"nodeName": "dgx1-1", "cpu": {"usageNanoCores": 2_000_000_000}}}

    def silent(_token: str, _method: str, path: str, _body: object) -> None:
        if "/proxy/" in path and "/dgx1-1/" not in path:
            server.closed.wait()

    server.admit = silent
    outcome = muster("top", "node", "--no-headers")
    assert outcome.code == 0
    assert len(outcome.lines) == 40
    assert outcome.lines[0].split()[0] == "dgx1-1"


async def test_no_question_without_an_answer_is_left_behind() -> None:
    ended: list[str] = []

    async def answer(name: str) -> str:
        try:
            if name.startswith("silent"):
                await asyncio.Event().wait()
            return name
        finally:
            ended.append(name)

    names = ["a", "silent-1", "b", "silent-2"]
    assert sorted(await while_some_answer(map(answer, names), 0.1)) == ["a", "b"]
    assert sorted(ended) == sorted(names)
