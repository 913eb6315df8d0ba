"""Reasons of pending workloads: the named obstacle, its words and amounts, and remedies that really help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.planner import plan
from orchestrator.planner.accounting.amounts import amount_text, amounts_text
from orchestrator.planner.model import (
    UNLIMITED,
    Constraints,
    PendingReason,
    PodState,
    Request,
    Snapshot,
    Taint,
    Waiting,
    Workload,
)
from orchestrator.planner.obstacles import Hindrances, Nominated
from orchestrator.planner.reasons.node_texts import POD_SLOT, Asking, Shortage, fragmented
from orchestrator.planner.reasons.sentences import hindrances_text, sentence
from orchestrator.planner.settings import Settings
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running

GIB = 1 << 30


def asking(name: str, owner: str, request: Request, **changes: object) -> Workload:
    """Return a workload of one pod with this request."""
    plain = workload(name, owner, 1000)
    pods = tuple(replace(pod, request=request) for pod in plain.pods)
    return replace(plain, pods=pods, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (1000, 0, "1 GPU"),
        (2000, 0, "2 GPUs"),
        (500, 0, "0.5 GPUs"),
        (UNLIMITED, 0, "unlimited GPUs"),
        (1000, 1, "1 CPU"),
        (1500, 1, "1.5 CPUs"),
        (16 * GIB, 2, "16 GiB"),
        (GIB // 2, 2, "512 MiB"),
        (0, 2, "0 GiB"),
        (UNLIMITED, 2, "unlimited memory"),
    ],
)
def test_amounts_are_written_as_people_do(amount: int, resource: int, text: str) -> None:
    assert amount_text(amount, resource) == text


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ((2000, 4000, GIB), "2 GPUs"),
        ((0, 4000, GIB), "4 CPUs and 1 GiB"),
        ((0, 0, GIB), "1 GiB"),
        ((0, 0, 0), "a place"),
    ],
)
def test_a_request_without_gpus_is_named_by_its_resources(amounts: tuple[int, int, int], text: str) -> None:
    assert amounts_text(amounts) == text


def why(*work: Workload, nodes: int = 2, **node_changes: object) -> PendingReason:
    """Return the reason of the first workload, of team a, on nodes with four GPUs."""
    machines = tuple(node(f"node-{each}", 4, **node_changes) for each in range(nodes))
    decision = plan(Snapshot(machines, (project("a", 8000), project("b", 0)), work))
    return decision.pending[work[0].id]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (
            Request(gpu_count=5),
            Waiting.TOO_LARGE,
            "asks for 5 GPUs, and the largest node that matches has 4 GPUs to give",
        ),
        (Request(gpu_count=1, cpu_milli=81_000), Waiting.TOO_LARGE, "asks for 81 CPUs, and the largest node"),
        (Request(memory_bytes=513 * GIB), Waiting.TOO_LARGE, "asks for 513 GiB, and the largest node"),
        (Request(gpu_memory_mib=99 << 10), Waiting.TOO_LARGE, "asks for 99 GiB of the memory of a GPU"),
    ],
)
def test_a_pod_that_no_node_can_hold_is_told_the_missing_resource(
    request_: Request, code: Waiting, words: str
) -> None:
    reason = why(asking("new", "a", request_), gpu_memory_mib=80 << 10)
    assert reason.code is code
    assert words in reason.message


def test_no_node_has_all_of_it_although_each_has_some() -> None:
    machines = (node("gpus", 8, cpu_milli=8000), node("cpus", 0, cpu_milli=64_000))
    new = asking("new", "a", Request(gpu_count=8, cpu_milli=64_000))
    reason = plan(Snapshot(machines, (project("a", 8000),), (new,))).pending["new"]
    assert reason == PendingReason(
        Waiting.TOO_LARGE, "a pod asks for 8 GPUs and 64 CPUs, and no node that matches has all of it"
    )


def firm(name: str, request: Request, place: str, first: int) -> Workload:
    """Return a running non-preemptible workload of team b."""
    new = asking(name, "b", request, preemptible=False)
    devices = tuple(range(first, first + request.gpu_count))
    pod = replace(new.pods[0], state=PodState.ALLOCATED, node=place, devices=devices)
    return replace(new, pods=(pod,), started_at_us=1)


@pytest.mark.parametrize(
    ("busy", "request_", "words"),
    [
        (
            Request(cpu_milli=72_000),
            Request(gpu_count=2, cpu_milli=12_000),
            "2 nodes have the GPUs but not 12 CPUs: at most 8 CPUs are free there",
        ),
        (
            Request(memory_bytes=500 * GIB),
            Request(gpu_count=1, memory_bytes=64 * GIB),
            "2 nodes have the GPUs but not 64 GiB: at most 12 GiB are free there",
        ),
        (
            Request(gpu_count=2),
            Request(gpu_count=3),
            "4 are free, 4 of them whole, but no node has 3 whole ones",
        ),
        (
            Request(cpu_milli=72_000),
            Request(cpu_milli=12_000),
            "16 CPUs are free in all, but at most 8 CPUs are free on one node",
        ),
    ],
)
def test_the_missing_resource_of_nodes_is_named(busy: Request, request_: Request, words: str) -> None:
    work = [firm(f"busy-{each}", busy, f"node-{each}", 0) for each in range(2)]
    reason = why(asking("new", "a", request_), *work)
    assert reason.code is Waiting.FRAGMENTED
    assert words in reason.message


def test_free_amounts_are_those_after_the_decision() -> None:
    """The large job is tried first; then the small ones take the free devices."""
    large = workload("large", "a", 4000, age=1)
    small = [workload(f"small-{each}", "b", 1000, age=2 + each) for each in range(2)]
    busy = [firm(f"busy-{each}", Request(gpu_count=3), f"node-{each}", 0) for each in range(2)]
    reason = why(large, *small, *busy)
    assert "; 0 of 8 are free" in reason.message


@pytest.mark.parametrize("request_", [Request(gpu_count=4), Request(cpu_milli=80_000)], ids=["GPUs", "CPUs"])
def test_a_nominee_is_told_its_node_and_its_gpus(request_: Request) -> None:
    lent = asking("lent", "b", request_)
    pod = replace(
        lent.pods[0], state=PodState.ALLOCATED, node="node-0", devices=tuple(range(request_.gpu_count))
    )
    teams = (project("a", 4000, quota_cpu_milli=80_000), project("b", 0, quota_cpu_milli=0))
    work = (asking("new", "a", request_), replace(lent, pods=(pod,), started_at_us=1))
    decision = plan(Snapshot((node("node-0", 4),), teams, work))
    promised = "4 GPUs" if request_.gpu_count else "80 CPUs"
    assert decision.pending["new"] == PendingReason(
        Waiting.RELEASING,
        f"is nominated to node node-0 with {promised}; terminating pods still hold them",
    )
    assert decision.evictions[0].message.startswith(f"{promised} reclaimed for new of a")


def test_a_gang_is_told_all_of_its_nodes() -> None:
    both = Nominated((1000, 0, 0), ("n1",)).plus(Nominated((1000, 0, 0), ("n1", "n2")))
    assert sentence(both).startswith("is nominated to nodes n1, n2 with 2 GPUs;")


def lent_singles() -> list[Workload]:
    return [running(workload(f"w{each}", "b", 1000), "node-0", each, started=each + 1) for each in range(4)]


@pytest.mark.parametrize(("cap", "words"), [(3, True), (0, True), (4, False), (None, False)])
def test_a_cap_on_evictions_that_cannot_be_met_is_said(cap: int | None, *, words: bool) -> None:
    """A job of four GPUs faces four jobs of one GPU. The equal job behind it gets the same reason."""
    new = [workload(f"new-{each}", "a", 4000, age=each) for each in range(2)]
    teams = (project("a", 8000), project("b", 0))
    snapshot = Snapshot((node("node-0", 4),), teams, (*lent_singles(), *new), 0, Settings(max_evictions=cap))
    decision = plan(snapshot)
    assert bool(decision.evictions) is not words
    for each in new if words else []:
        assert f"one decision makes {cap} at most (--max-evictions)" in decision.pending[each.id].message


def test_a_cap_that_others_have_used_up_is_said() -> None:
    new = [workload(f"new-{each}", "a", 2000, age=each) for each in range(2)]
    teams = (project("a", 4000), project("b", 0))
    snapshot = Snapshot((node("node-0", 4),), teams, (*lent_singles(), *new), 0, Settings(max_evictions=3))
    decision = plan(snapshot)
    assert len(decision.evictions) == 2
    words = "of the 3 evictions that one decision makes at most (--max-evictions) 2 were made for others"
    assert words in decision.pending["new-1"].message


def test_a_workload_left_over_by_the_bound_on_work_is_told_so() -> None:
    """Eight workloads are always tried. No capacity is left, and the others are not tried."""
    new = [workload(f"new-{each}", "a", 1000, age=each) for each in range(12)]
    teams = (project("a", 12_000), project("b", 0))
    snapshot = Snapshot((node("node-0", 4),), teams, (*lent_singles(), *new), 0, Settings(max_work=0))
    decision = plan(snapshot)
    assert decision.left_over
    for name in decision.left_over:
        assert decision.pending[name].message.endswith("it is among the first in the next one")


@pytest.mark.parametrize(
    ("requested_mib", "held"), [(40 << 10, 500), (16 << 10, 1000), (8 << 10, 500), (100 << 10, None)]
)
def test_gpu_memory_counts_as_part_of_the_smallest_gpu_that_has_so_much(
    requested_mib: int, held: int | None
) -> None:
    machines = (node("large", 1, gpu_memory_mib=80 << 10), node("small", 1, gpu_memory_mib=16 << 10))
    new = asking("new", "a", Request(gpu_memory_mib=requested_mib))
    decision = plan(Snapshot(machines, (project("a", 2000),), (new,)))
    assert decision.allocated_gpu_milli["a"] == (held or 0)


@pytest.mark.parametrize(
    ("limited", "gpus", "alone"),
    [("a", 4, True), ("d", 4, True), ("both", 4, False), ("a", 2, False)],
    ids=["the project's", "the department's", "both", "not all fit"],
)
def test_only_one_limit_in_the_way_is_said_where_all_its_waiting_jobs_fit(
    limited: str, gpus: int, *, alone: bool
) -> None:
    bounds = {name: {"limit_gpu_milli": 1000} if limited in (name, "both") else {} for name in "ad"}
    teams = (project("d", 8000, **bounds["d"]), project("a", 8000, parent="d", **bounds["a"]))
    work = [workload(f"w{each}", "a", 1000, age=each) for each in range(3)]
    decision = plan(Snapshot((node("node-0", gpus),), teams, (running(work[0], "node-0"), *work[1:])))
    said = {name: "is in its way" in reason.message for name, reason in decision.pending.items()}
    assert said == {"w1": alone, "w2": alone}


def test_preemptible_is_only_proposed_where_that_starts_it() -> None:
    teams = (project("a", 1000), project("b", 3000))
    for size, proposed in ((2000, True), (5000, False)):
        new = workload("new", "a", size, preemptible=False)
        decision = plan(Snapshot((node("node-0", 4),), teams, (new,)))
        assert ("submit it as preemptible" in decision.pending["new"].message) is proposed


@pytest.mark.parametrize(
    ("nodes", "devices", "words"),
    [
        (1, 2, "1 node has the GPUs but no pod slot"),
        (3, 2, "3 nodes have the GPUs but no pod slot"),
        (3, 0, "but no node has a pod slot beside them"),
    ],
)
def test_a_missing_pod_slot_is_named(nodes: int, devices: int, words: str) -> None:
    request = Request(gpu_count=devices, cpu_milli=1000)
    shortage = Shortage(request, POD_SLOT, nodes, 0)
    reason = fragmented(
        Asking(request.amounts, 1), request, shortage, free=(8000, 8000, 0), whole=8, level=""
    )
    assert words in reason.message


def test_budgets_and_the_cap_are_both_named() -> None:
    words = hindrances_text(Hindrances(("the budget b/keep",), cap=2, pods_over_cap=3))
    assert "takes 3 evictions or more, and one decision makes 2 at most (--max-evictions)" in words
    assert words.endswith("; its possible victims are protected by the budget b/keep")


CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
POOL = {"pool": "x"}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([{}], "of 1 node none takes its pods: 1 not matching its node selector or affinity"),
        (
            [{"labels": POOL, "schedulable": False, "taints": (CORDONED,)}, {}, {}],
            "of 3 nodes none takes its pods: 2 not matching its node selector or affinity, 1 cordoned",
        ),
        (
            [
                {"labels": POOL, "schedulable": False, "unhealthy": "not ready: NodeStatusUnknown"},
                {"labels": POOL, "schedulable": False},
                {"labels": POOL, "taints": (Taint("k", "v", "NoSchedule"),)},
                {"labels": POOL, "schedulable": False, "taints": (CORDONED, Taint("k", "v", "NoSchedule"))},
            ],
            (
                "of 4 nodes none takes its pods: 1 not ready or marked unhealthy, 1 cordoned, 1 closed to new pods, "
                "1 with a taint that it does not tolerate"
            ),
        ),
        (
            [{"labels": POOL, "schedulable": False, "unhealthy": "x", "taints": (CORDONED,)}],
            "of 1 node none takes its pods: 1 not ready or marked unhealthy",
        ),
    ],
)
def test_nodes_that_take_no_pod_are_counted_by_the_reason(nodes: list[dict[str, Any]], message: str) -> None:
    waits = workload("new", "a", 1000, constraints=Constraints(node_selector=(("pool", "x"),)))
    there = tuple(replace(node(f"n{number}"), **fields) for number, fields in enumerate(nodes))
    reason = plan(Snapshot(there, (project("a", 4000),), (waits,))).pending["new"]
    assert reason == PendingReason(Waiting.NO_NODE_MATCHES, message)


def test_a_node_of_another_type_is_counted_by_its_type() -> None:
    waits = workload("new", "a", 1000)
    owner = replace(project("a", 4000), train_node_types=("fast",))
    reason = plan(Snapshot((node("n1"), node("n2")), (owner,), (waits,))).pending["new"]
    assert reason.message == "of 2 nodes none takes its pods: 2 not of the project's node types"
