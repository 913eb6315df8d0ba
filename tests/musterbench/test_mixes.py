"""The mixes are the described busy clusters, and their measurements are correct."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from musterbench.clusters import HOSTNAME_LABEL, RACK_LABEL
from musterbench.mix_times import carried_out, measure, with_exponent
from musterbench.mixes import MIXES
from musterbench.result import Result
from orchestrator.planner import plan
from orchestrator.planner.model import DEVICE_MILLI, PodState, Snapshot, Workload

NODES = 16
GPUS = 8
BENCH = [sys.executable, "-P", "-m", "musterbench"]


def bench_planner(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*BENCH, "planner", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def built(name: str, nodes: int = NODES) -> Snapshot:
    return MIXES[name].build(nodes, GPUS)


def waiting(snapshot: Snapshot) -> list[Workload]:
    return [workload for workload in snapshot.workloads if workload.pods[0].state is PodState.PENDING]


def devices_in_use(snapshot: Snapshot) -> Counter[tuple[str, int]]:
    """Return the thousandths in use of each device."""
    used: Counter[tuple[str, int]] = Counter()
    for workload in snapshot.workloads:
        for pod in workload.pods:
            for device in pod.devices if pod.node else ():
                used[pod.node or "", device] += pod.request.gpu_portion_milli or DEVICE_MILLI
    return used


@pytest.mark.parametrize("name", MIXES)
def test_a_mix_of_a_size_is_always_the_same_snapshot(name: str) -> None:
    assert built(name) == built(name)


@pytest.mark.parametrize("name", MIXES)
def test_running_pods_fit_and_nearly_fill_the_cluster(name: str) -> None:
    snapshot = built(name)
    used = devices_in_use(snapshot)
    cpu_milli: Counter[str] = Counter()
    for workload in snapshot.workloads:
        for pod in workload.pods:
            if pod.node:
                cpu_milli[pod.node] += pod.request.cpu_milli
    assert max(used.values()) <= DEVICE_MILLI
    assert max(device for _, device in used) < GPUS
    capacity_milli = snapshot.nodes[0].cpu_milli
    assert max(cpu_milli.values()) <= capacity_milli
    gpus_part = len(used) / (NODES * GPUS)
    cpu_part = sum(cpu_milli.values()) / (NODES * capacity_milli)
    assert max(gpus_part, cpu_part) > 0.8
    assert waiting(snapshot)


@pytest.mark.parametrize("name", MIXES)
def test_quotas_are_about_the_capacity_at_the_sizes_that_are_measured(name: str) -> None:
    snapshot = built(name, 125)
    parents = {project.parent for project in snapshot.projects}
    quotas = [project.quota_gpu_milli or 0 for project in snapshot.projects if project.name not in parents]
    assert 0.8 < sum(quotas) / (125 * GPUS * DEVICE_MILLI) <= 1


def test_the_mixes_match_their_names() -> None:
    departments = built("departments")
    parents = {project.parent for project in departments.projects if project.parent}
    assert len(parents) == 8
    assert len(departments.projects) == 8 + 40
    assert len(waiting(departments)) == 4 * NODES
    assert {workload.pods[0].request.gpu_count for workload in waiting(departments)} == {1, 2, 4, 8}
    per_gpu = {
        workload.pods[0].request.cpu_milli // workload.pods[0].request.gpu_count
        for workload in waiting(departments)
    }
    assert len(per_gpu) == 4

    requests = [workload.pods[0].request.cpu_milli for workload in waiting(built("cpu-requests"))]
    assert len(set(requests)) == len(requests)

    assert len({workload.priority for workload in built("priorities").workloads}) > 2

    racks = waiting(built("racks"))
    assert all(gang.topology and gang.topology.required == RACK_LABEL for gang in racks)
    assert all(gang.min_member == len(gang.pods) > 1 for gang in racks)

    parts = built("parts")
    assert set(devices_in_use(parts).values()) == {600, 1000}
    assert {workload.pods[0].request.gpu_portion_milli for workload in waiting(parts)} == {500}

    terms = [workload.pods[0].constraints.node_terms for workload in waiting(built("affinities"))]
    assert len(set(terms)) == len(terms) == NODES
    assert all(term[0][0].key == HOSTNAME_LABEL and len(term[0][0].values) > 1 for term in terms)

    assert len(built("projects").projects) == 200

    scattered = built("consolidation")
    assert len(devices_in_use(scattered)) == NODES * (GPUS - 1)
    assert {workload.pods[0].request.gpu_count for workload in waiting(scattered)} == {4, 8}


def test_a_measurement_names_its_decisions_and_again_with_kept_books() -> None:
    result = measure("projects", NODES, GPUS, limit_seconds=120)
    decision = plan(built("projects"))
    assert result.problem is None
    assert result.figures["evictions"] == len(decision.evictions) > 0
    assert result.figures["bindings"] == len(decision.bindings)
    assert result.figures["nominations"] == len(decision.nominations)
    assert result.figures["left_over"] == len(decision.left_over)
    assert min(result.seconds, result.figures["again_s"], result.figures["next_s"]) > 0
    assert result.jobs == len(built("projects").workloads)


def test_carrying_out_a_decision_changes_its_pods_and_nothing_else() -> None:
    snapshot = built("priorities")
    decision = plan(snapshot)
    after = carried_out(snapshot, decision)
    pods = {pod.id: pod for workload in after.workloads for pod in workload.pods}
    assert decision.bindings
    assert decision.evictions
    for binding in decision.bindings:
        pod = pods[binding.pod]
        assert (pod.state, pod.node, pod.devices) == (PodState.ALLOCATED, binding.node, binding.devices)
    assert all(pods[eviction.pod].state is PodState.RELEASING for eviction in decision.evictions)
    assert all(pods[nomination.pod].nominated_node == nomination.node for nomination in decision.nominations)
    touched = {
        entry.workload for entries in (decision.bindings, decision.evictions, decision.nominations)
        for entry in entries
    }  # fmt: skip
    for old, new in zip(snapshot.workloads, after.workloads, strict=True):
        assert (new is old) == (old.id not in touched)


@pytest.mark.parametrize(("seconds", "exponent"), [(1.0, 0.0), (2.0, 1.0), (4.0, 2.0), (0.5, -1.0)])
def test_increase_is_the_exponent_of_the_nodes(seconds: float, exponent: float) -> None:
    before = Result("mix: racks", 125, 1000, 1, 1.0, 0, None, {"bindings": 0})
    after = Result("mix: racks", 250, 2000, 1, seconds, 0, None, {"bindings": 0})
    assert with_exponent(after, before).figures["exponent"] == pytest.approx(exponent)
    assert "exponent" not in with_exponent(before, None).figures


@pytest.mark.rare  # takes half a minute
def test_the_command_shows_seconds_increase_and_decisions() -> None:
    done = bench_planner("--mix", "affinities", "--nodes", "8", "--nodes", "16")
    assert done.returncode == 0, done.stderr
    assert "an affinity of its own for each job" in done.stdout
    assert "8 nodes" in done.stdout
    assert "growth" in done.stdout
    both = bench_planner("--mix", "all", "--nodes", "8", "--json")
    results = json.loads(both.stdout)["results"]
    assert [result["case"] for result in results] == [f"mix: {name}" for name in MIXES]
    assert all(result["nodes"] == 8 and "evictions" in result for result in results)


def test_a_decision_beyond_the_limit_is_stopped_and_larger_sizes_are_skipped() -> None:
    arguments = ("--mix", "departments", "--nodes", "32", "--nodes", "64", "--limit", "0.01")
    done = bench_planner(*arguments, "--json")
    (result,) = json.loads(done.stdout)["results"]
    assert done.returncode == 1
    assert result["nodes"] == 32
    assert result["problem"] == "stopped: a decision took more than 0.01 processor seconds"
    table = bench_planner(*arguments)
    assert "> 0.01" in table.stdout


def test_a_mix_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    done = bench_planner("--mix", "rack")
    assert done.returncode == 2
    assert "there is no mix 'rack'" in done.stderr
    assert "racks" in done.stderr
