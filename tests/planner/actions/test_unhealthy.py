"""Pods are migrated from unhealthy nodes and GPUs: a table of the migrated and the remaining
pods, and the next users.
"""

from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.accounting.ledger import capacity_gpu_milli
from orchestrator.planner.model import Node, Plan, Project, Snapshot, Workload
from orchestrator.planner.settings import Settings
from orchestrator.simulation.diagnosis import diagnose
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running

MINUTE_US = 60_000_000


def sick(name: str, gpus: int = 8, **changes: object) -> Node:
    return node(name, gpus, schedulable=False, unhealthy="marked by the administrator", **changes)


def decide(
    nodes: list[Node],
    workloads: list[Workload],
    projects: list[Project] | None = None,
    settings: Settings | None = None,
    now_us: int = 0,
) -> Plan:
    return plan(
        Snapshot(
            tuple(nodes),
            tuple(projects or [project("a", 16000)]),
            tuple(workloads),
            now_us,
            settings or Settings(),
        )
    )


def evicted(decision: Plan) -> list[str]:
    return sorted(each.pod for each in decision.evictions)


def test_workloads_on_a_node_marked_unhealthy_are_migrated_with_a_nomination() -> None:
    job = running(workload("job", "a", 2000), "node-1")
    decision = decide([sick("node-1"), node("node-2")], [job])
    assert evicted(decision) == ["job-0"]
    assert [(each.rule, each.beneficiary) for each in decision.evictions] == [("unhealthy", "job")]
    assert "node-1 is unhealthy (marked by the administrator)" in decision.evictions[0].message
    assert [(each.pod, each.node) for each in decision.nominations] == [("job-0", "node-2")]
    assert not decision.endangered


def test_only_users_of_an_unhealthy_gpu_are_migrated_and_the_gpu_is_given_to_no_pod() -> None:
    hit = running(workload("hit", "a", 2000), "node-1", 2)
    neighbour = running(workload("beside", "a", 2000), "node-1", 0)
    new = workload("new", "a", 1000)
    decision = decide([node("node-1", unhealthy_gpus=(3,))], [hit, neighbour, new])
    assert evicted(decision) == ["hit-0"]
    assert decision.nominations[0].devices == (4, 5)
    assert [each.devices for each in decision.bindings] == [(6,)]


@pytest.mark.parametrize(("gpu_milli", "fits"), [(6000, True), (7000, False)])
def test_two_unhealthy_gpus_of_eight_leave_six(gpu_milli: int, fits: bool) -> None:
    decision = decide([node("node-1", unhealthy_gpus=(0, 5))], [workload("new", "a", gpu_milli)])
    assert [set(each.devices) for each in decision.bindings] == ([{1, 2, 3, 4, 6, 7}] if fits else [])


@pytest.mark.parametrize(
    ("held", "lost", "gpu_milli", "fits"),
    [
        (0, 1, 7000, True),
        (0, 1, 8000, False),
        (7, 1, 1000, False),
        (6, 1, 1000, True),
        (8, 2, 1000, False),
        (7, 1, 500, False),
        (6, 1, 500, True),
    ],
)
def test_of_gpus_that_are_lost_without_a_name_only_the_number_counts(
    held: int, lost: int, gpu_milli: int, fits: bool
) -> None:
    others = [running(workload(f"w{each}", "a", 1000), "node-1", each) for each in range(held)]
    decision = decide([node("node-1", lost_gpus=lost)], [*others, workload("new", "a", gpu_milli)])
    assert bool(decision.bindings) is fits
    assert not decision.evictions, "nobody knows whose GPU it is"


def test_a_non_preemptible_workload_remains_and_is_told_unless_the_project_allows_its_migration() -> None:
    desk = running(workload("desk", "a", 1000, interactive=True), "node-1")
    nodes = [sick("node-1"), node("node-2")]
    stays = decide(nodes, [desk])
    assert not stays.evictions
    assert "desk is not preemptible and stays" in stays.endangered["desk"]
    assert evicted(decide(nodes, [desk], [project("a", 16000, moves_non_preemptible=True)])) == ["desk-0"]


def test_a_workload_that_fits_nowhere_else_remains_and_is_told_until_it_fits() -> None:
    job = running(workload("job", "a", 4000), "node-1")
    full = running(workload("full", "a", 6000), "node-2")
    stays = decide([sick("node-1"), node("node-2")], [job, full])
    assert not stays.evictions
    assert "stays until it finds 4 GPUs elsewhere" in stays.endangered["job"]
    assert evicted(decide([sick("node-1"), node("node-2"), node("node-3")], [job, full])) == ["job-0"]


def test_a_gang_moves_as_a_whole_when_it_cannot_go_on_without_the_pod_that_is_hit() -> None:
    gang = workload("gang", "a", 2000, pods=2, gang=True)
    one, two = running(gang, "node-1").pods
    gang = replace(gang, pods=(one, replace(two, node="node-2", devices=(0, 1))), started_at_us=1)
    nodes = [sick("node-1"), node("node-2"), node("node-3")]
    assert evicted(decide(nodes, [gang])) == ["gang-0", "gang-1"]
    elastic = replace(gang, min_member=1)
    assert evicted(decide(nodes, [elastic])) == ["gang-0"]


@pytest.mark.parametrize(("minutes", "moved"), [(1, False), (2, True)])
def test_a_node_that_is_not_ready_is_given_time_before_its_work_is_moved(minutes: int, moved: bool) -> None:
    job = running(workload("job", "a", 1000), "node-1")
    gone = sick("node-1", unhealthy_since_us=MINUTE_US)
    decision = decide([gone, node("node-2")], [job], now_us=MINUTE_US * (1 + minutes))
    assert evicted(decision) == (["job-0"] if moved else [])


def test_running_workloads_are_migrated_before_new_ones_start() -> None:
    job = running(workload("job", "a", 8000), "node-1")
    decision = decide([sick("node-1"), node("node-2")], [job, workload("new", "a", 8000, age=9)])
    assert evicted(decision) == ["job-0"]
    assert not decision.bindings


@pytest.mark.parametrize("team", ["a", "b"])
def test_no_pod_is_migrated_to_a_placement_that_another_would_get(team: str) -> None:
    """Beside the affected pod, an older job of the same project is pending, or a job within quota while the running
    one borrows.
    """
    projects = [project("a", 0 if team == "b" else 16000, over_quota_weight=1), project("b", 8000)]
    job = running(workload("job", "a", 8000), "node-1")
    decision = decide([sick("node-1"), node("node-2")], [job, workload("new", team, 8000)], projects)
    assert not decision.evictions
    assert [each.workload for each in decision.bindings] == ["new"]
    assert "stays until it finds 8 GPUs elsewhere" in decision.endangered["job"]


def test_the_cap_on_evictions_holds_for_moves_too() -> None:
    jobs = [running(workload(f"w{each}", "a", 1000), "node-1", each) for each in range(4)]
    nodes = [sick("node-1"), node("node-2")]
    decision = decide(nodes, jobs, settings=Settings(max_evictions=3))
    assert len(decision.evictions) == 3
    assert len(decision.endangered) == 1


@pytest.mark.parametrize(
    ("most", "others", "moves"),
    [
        (None, [sick("node-3")], True),
        (1, [], True),
        (2, [node("node-3", unhealthy_gpus=(1,))], True),
        (1, [node("node-3", unhealthy_gpus=(1,))], False),
        (1, [sick("node-3")], False),
        (
            1,
            [node("node-3", schedulable=False, unhealthy="not ready", unhealthy_since_us=9 * MINUTE_US)],
            True,
        ),
        (1, [node("node-3", schedulable=False, unhealthy="not ready", unhealthy_since_us=MINUTE_US)], False),
        (0, [], False),
    ],
)
def test_more_unhealthy_nodes_than_the_settings_allow_keep_their_pods(
    most: int | None, others: list[Node], moves: bool
) -> None:
    job = running(workload("job", "a", 2000), "node-1")
    nodes = [sick("node-1"), node("node-2"), *others]
    decision = decide(nodes, [job], settings=Settings(max_unhealthy_nodes=most), now_us=10 * MINUTE_US)
    assert evicted(decision) == (["job-0"] if moves else [])
    said = (
        f"job stays, as {1 + len(others)} nodes are unhealthy at the same time (--max-unhealthy-nodes {most})"
    )
    assert (said in decision.endangered.get("job", "")) is not moves


def test_unhealthy_gpus_are_no_part_of_the_shares() -> None:
    nodes = [sick("node-1"), node("node-2", unhealthy_gpus=(1,), lost_gpus=2), node("node-3")]
    assert capacity_gpu_milli(nodes) == 13_000
    decision = decide(
        nodes,
        [workload("x", "a", 1000, pods=16), workload("y", "b", 1000, pods=16)],
        [project("a", 1000), project("b", 1000)],
    )
    assert sum(decision.shares_gpu_milli.values()) == 13_000


def test_a_diagnosis_names_the_problem() -> None:
    desk = running(workload("desk", "a", 1000, interactive=True), "node-1")
    snapshot = Snapshot((sick("node-1"), node("node-2")), (project("a", 8000),), (desk,))
    assert "node-1 is unhealthy" in diagnose(snapshot, desk).endangered
