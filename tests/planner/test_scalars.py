"""Resources beside GPUs, CPU and memory: placements, victims, nominations, migrations, reservations and reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.planner import plan
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import (
    Node,
    Plan,
    Pod,
    PodState,
    Project,
    Request,
    Scalars,
    Snapshot,
    Waiting,
    Workload,
)
from orchestrator.planner.placement.reservations import ReservedCapacity
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.node_options import minimal_options
from orchestrator.planner.session import Session
from orchestrator.simulation.run import settle
from tests.planner.builders import node, project, workload

HCA = "rdma/hca"
ONE: Scalars = ((HCA, 1),)
GIB = 1 << 30


def asking(new: Workload, *scalars: tuple[str, int], **changes: Any) -> Workload:
    """Return the workload, whose pods also request these resources."""
    return replace(
        new,
        pods=tuple(
            replace(pod, request=replace(pod.request, scalars=tuple(sorted(scalars)), **changes))
            for pod in new.pods
        ),
    )


def on(new: Workload, place: str, first: int = 0, state: PodState = PodState.ALLOCATED) -> Workload:
    """Return the workload running on the node, on the devices from `first` on."""
    pods: list[Pod] = []
    for pod in new.pods:
        devices = tuple(range(first, first + pod.request.gpu_count))
        first += len(devices)
        pods.append(pod.placed(state, place, devices))
    return replace(new, pods=tuple(pods), started_at_us=1)


def snapshot(nodes: list[Node], projects: list[Project], *workloads: Workload) -> Snapshot:
    return Snapshot(tuple(nodes), tuple(projects), workloads)


def decide(nodes: list[Node], projects: list[Project], *workloads: Workload) -> Plan:
    return plan(snapshot(nodes, projects, *workloads))


def bound(decision: Plan) -> dict[str, str]:
    return {binding.pod: binding.node for binding in decision.bindings}


def evicted(decision: Plan) -> set[str]:
    return {eviction.workload for eviction in decision.evictions}


def test_as_many_pods_start_as_the_node_has_of_the_resource() -> None:
    nodes = [node("n1", scalars={HCA: 1}), node("n2")]
    decision = decide(nodes, [project("a", 16_000)], asking(workload("w", "a", 1000, pods=3), (HCA, 1)))
    assert bound(decision) == {"w-0": "n1"}
    assert decision.pending["w"].code is Waiting.FRAGMENTED
    assert (
        "2 nodes have the GPUs but not 1 rdma/hca: at most 0 are free there" in decision.pending["w"].message
    )


def test_the_reason_counts_only_nodes_with_the_gpus() -> None:
    nodes = [node("n1", 1, scalars={HCA: 1}), node("n2")]
    holder = on(workload("h", "a", 1000, interactive=True), "n1")
    waits = asking(workload("w", "a", 1000), (HCA, 1))
    decision = decide(nodes, [project("a", 16_000)], holder, waits)
    assert "1 node has the GPUs but not 1 rdma/hca" in decision.pending["w"].message


def test_a_node_has_none_of_a_resource_that_it_does_not_name() -> None:
    decision = decide([node("n1")], [project("a", 8000)], asking(workload("w", "a", 1000), (HCA, 1)))
    assert bound(decision) == {}
    assert decision.pending["w"].code is Waiting.TOO_LARGE
    assert "1 rdma/hca, and the largest node that matches has 0 to give" in decision.pending["w"].message


@pytest.mark.parametrize(
    ("name", "requested", "has", "words"),
    [
        (
            "hugepages-2Mi",
            4 * GIB,
            GIB,
            "4 GiB of hugepages-2Mi, and the largest node that matches has 1 GiB",
        ),
        ("ephemeral-storage", 300 * GIB, 200 * GIB, "300 GiB of ephemeral-storage"),
        ("example.com/nic", (1 << 63) - 1, (1 << 63) - 2, "9223372036854775807 example.com/nic"),
    ],
)
def test_a_request_above_the_largest_node_is_named(name: str, requested: int, has: int, words: str) -> None:
    waits = asking(workload("w", "a", 1000), (name, requested))
    decision = decide([node("n1", scalars={name: has})], [project("a", 8000)], waits)
    assert decision.pending["w"].code is Waiting.TOO_LARGE
    assert words in decision.pending["w"].message
    assert bound(decide([node("n1", scalars={name: requested})], [project("a", 8000)], waits)) == {
        "w-0": "n1"
    }


def test_work_without_gpus_is_told_of_the_resource_too() -> None:
    nodes = [node("n1", 0, scalars={"ephemeral-storage": 439 * GIB})]
    scratch = asking(
        replace(workload("w", "a", 1000, pods=2)),
        ("ephemeral-storage", 300 * GIB),
        gpu_count=0,
        cpu_milli=1000,
    )
    decision = decide(nodes, [project("a", 8000)], scratch)
    assert len(decision.bindings) == 1
    assert (
        "at most 139 GiB of 300 GiB of ephemeral-storage are free on one node"
        in decision.pending["w"].message
    )


def test_resources_that_no_node_has_together_are_named_together() -> None:
    nodes = [node("n1", scalars={HCA: 2}), node("n2", scalars={HCA: 2, "example.com/nic": 1})]
    running = on(asking(workload("r", "a", 1000, interactive=True), (HCA, 2)), "n2")
    waits = asking(workload("w", "a", 1000), (HCA, 1), ("example.com/nic", 1))
    decision = decide(nodes, [project("a", 16_000)], running, waits)
    assert "not 1 example.com/nic and 1 rdma/hca together" in decision.pending["w"].message


def test_scalars_of_other_schedulers_count() -> None:
    nodes = [node("n1", scalars={HCA: 2}, foreign=Request(scalars=ONE), foreign_pods=1)]
    decision = decide(nodes, [project("a", 8000)], asking(workload("w", "a", 1000, pods=2), (HCA, 1)))
    assert len(decision.bindings) == 1


def test_work_that_does_not_request_it_starts_where_it_was_lost() -> None:
    # The device plugin of n1 has vanished: a pod with one of its devices continues.
    running = on(asking(workload("r", "a", 1000), (HCA, 1)), "n1")
    decision = decide([node("n1")], [project("a", 8000)], running, workload("w", "a", 1000))
    assert bound(decision) == {"w-0": "n1"}


def test_the_victim_is_the_holder_of_the_resource() -> None:
    nodes = [node("n1", scalars={HCA: 1})]
    with_hca = on(asking(workload("old", "b", 1000, age=1), (HCA, 1)), "n1", 0)
    without = on(workload("young", "b", 1000, age=2), "n1", 1)
    wants = asking(workload("w", "a", 1000, age=3), (HCA, 1))
    decision = decide(nodes, [project("a", 4000), project("b", 0)], with_hca, without, wants)
    assert evicted(decision) == {"old"}


def test_victims_are_enough_for_each_resource_and_no_more() -> None:
    nodes = [node("n1", 4, scalars={HCA: 2, "example.com/nic": 1})]
    first = on(asking(workload("b1", "b", 1000, age=1), (HCA, 1)), "n1", 0)
    second = on(asking(workload("b2", "b", 1000, age=2), (HCA, 1)), "n1", 1)
    third = on(asking(workload("b3", "b", 1000, age=3), ("example.com/nic", 1)), "n1", 2)
    fourth = on(workload("b4", "b", 1000, age=4), "n1", 3)
    wants = asking(workload("w", "a", 1000, age=5), (HCA, 2))
    decision = decide(nodes, [project("a", 4000), project("b", 0)], first, second, third, fourth, wants)
    assert evicted(decision) == {"b1", "b2"}


def test_the_resource_of_a_terminating_pod_is_nominated_and_not_bound() -> None:
    nodes = [node("n1", scalars={HCA: 1})]
    leaving = on(asking(workload("r", "a", 1000), (HCA, 1)), "n1", 0, PodState.RELEASING)
    waits = asking(workload("w", "a", 1000), (HCA, 1))
    others = asking(workload("x", "a", 1000, age=9), (HCA, 1))
    decision = decide(nodes, [project("a", 8000)], leaving, waits, others)
    assert bound(decision) == {}
    assert [binding.pod for binding in decision.nominations] == ["w-0"]


def test_of_seventy_nodes_the_one_with_the_resource_is_found_by_a_reclaim() -> None:
    nodes = [node(f"n{number:02}", 2) for number in range(69)] + [node("z", 2, scalars={HCA: 1})]
    projects = [project("a", 2000), project("b", 0)]
    running = [
        on(workload(f"b{number:02}", "b", 2000, age=number), name.name)
        for number, name in enumerate(nodes[:-1], start=1)
        if number % 2
    ]
    holder = on(asking(workload("holder", "b", 2000), (HCA, 1)), "z")
    wants = asking(workload("w", "a", 1000, age=99), (HCA, 1))
    decision = decide(nodes, projects, *running, holder, wants)
    assert evicted(decision) == {"holder"}


def test_of_seventy_nodes_the_one_with_the_resource_is_freed_by_a_move() -> None:
    nodes = [node(f"n{number:02}", 2) for number in range(69)] + [node("z", 2, scalars={HCA: 1})]
    running = [on(workload(f"r-{each.name}", "a", 1000), each.name) for each in nodes]
    wants = asking(workload("w", "a", 2000, age=99), (HCA, 1))
    decision = decide(nodes, [project("a", 140_000)], *running, wants)
    assert evicted(decision) == {"r-z"}
    assert {binding.pod for binding in decision.nominations} == {"r-z-0", "w-0"}


def test_every_set_of_victims_frees_each_missing_resource() -> None:
    nodes = [node("n1", 4, scalars={HCA: 2})]
    holders = [on(asking(workload(f"h{number}", "b", 1000), (HCA, 1)), "n1", number) for number in range(2)]
    other = on(workload("o", "b", 1000), "n1", 2)
    session = Session(ClusterState(snapshot(nodes, [project("b", 0)], *holders, other)))
    (account,) = session.ledger.nodes
    candidates = Candidates(session).on(0)
    for count in (1, 2):
        options, _ = minimal_options(account, Request(gpu_count=1, scalars=((HCA, count),)), candidates)
        names = [sorted(candidate.workload.id for candidate in option.candidates) for option in options]
        assert sorted(names) == ([["h0"], ["h1"]] if count == 1 else [["h0", "h1"]])


def test_a_victim_is_moved_only_to_a_node_that_has_its_resource() -> None:
    nodes = [node("n1", 2, scalars={HCA: 1}), node("n2", 2), node("n3", 2, scalars={HCA: 1})]
    projects = [project("a", 4000), project("b", 2000)]
    mover = on(asking(workload("m", "b", 1000), (HCA, 1)), "n1")
    filler = on(workload("f", "b", 1000), "n3")
    wants = workload("w", "a", 2000, pods=2, gang=True, age=9)
    run = settle(snapshot(nodes, projects, mover, filler, wants))
    places = {pod.id: pod.node for workload in run.after.workloads for pod in workload.pods}
    assert places["m-0"] in {"n1", "n3"}
    assert None not in places.values()


def test_a_gang_starts_only_if_each_of_its_pods_gets_the_resource() -> None:
    gang = asking(workload("w", "a", 1000, pods=3, gang=True), (HCA, 1))
    projects = [project("a", 16_000)]
    two = [node("n1", scalars={HCA: 1}), node("n2", scalars={HCA: 1})]
    assert bound(decide(two, projects, gang)) == {}
    three = [node("n1", scalars={HCA: 1}), node("n2", scalars={HCA: 2})]
    assert sorted(bound(decide(three, projects, gang)).values()) == ["n1", "n2", "n2"]


@pytest.mark.parametrize(
    ("changes", "scalars", "words"),
    [
        ({}, {HCA: 1}, "its 3 pods ask for 3 rdma/hca: 2 are free in all"),
        (
            {},
            {"ephemeral-storage": 40 * GIB},
            "its 3 pods ask for 120 GiB of ephemeral-storage: 100 GiB are free in all",
        ),
        ({"cpu_milli": 60_000}, {}, "its 3 pods ask for 180 CPUs: 160 CPUs are free in all"),
        ({"memory_bytes": 400 * GIB}, {}, "its 3 pods ask for 1200 GiB: 1024 GiB are free in all"),
        ({}, {"ephemeral-storage": 30 * GIB}, "its 3 pods do not fit at the same time"),
    ],
)
def test_a_gang_is_told_of_which_resource_the_cluster_has_too_little(
    changes: dict[str, int], scalars: dict[str, int], words: str
) -> None:
    gang = asking(workload("w", "a", 1000, pods=3, gang=True), *scalars.items(), **changes)
    nodes = [node(name, scalars={HCA: 1, "ephemeral-storage": 50 * GIB}) for name in ("n1", "n2")]
    assert words in decide(nodes, [project("a", 8000)], gang).pending["w"].message


def test_a_gang_beyond_the_resource_of_the_cluster_has_no_fair_share() -> None:
    gang = asking(workload("w", "a", 1000, pods=3, gang=True), (HCA, 1))
    projects = [project("a", 0, over_quota_weight=1), project("b", 0, over_quota_weight=1)]
    decision = decide([node("n1", scalars={HCA: 2})], projects, gang, workload("x", "b", 1000))
    assert decision.shares_gpu_milli["a"] == 0


def test_a_rollback_restores_the_free_amount_of_a_resource() -> None:
    tree = ProjectTree((project("a", 8000),))
    ledger = Ledger([node("n1", scalars={HCA: 2})], tree)
    running = on(asking(workload("r", "a", 1000), (HCA, 1)), "n1")
    ledger.load(running, 1)
    account = ledger.by_name["n1"]
    mark = ledger.checkpoint()
    ledger.evict(running, running.pods[0])
    assert (account.free_scalar(HCA, later=False), account.free_scalar(HCA, later=True)) == (1, 2)
    ledger.rollback(mark)
    assert (account.free_scalar(HCA, later=False), account.free_scalar(HCA, later=True)) == (1, 1)


def test_a_reservation_includes_the_scalars_of_its_pods() -> None:
    (pod,) = asking(workload("w", "a", 1000), (HCA, 1)).pods
    assert ReservedCapacity().plus(pod).plus(pod).scalars == ((HCA, 2),)
