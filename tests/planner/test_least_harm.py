"""Who makes way: quotas are kept first, then no GPU is freed for nothing, then few pods go, then little work."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import (
    Constraints,
    Node,
    Plan,
    Project,
    Snapshot,
    SubGroup,
    TopologyRule,
    Workload,
)
from orchestrator.planner.settings import Settings
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running, victims


def decide(nodes: Iterable[Node], projects: Iterable[Project], *work: Workload) -> Plan:
    return plan(Snapshot(tuple(nodes), tuple(projects), work))


def test_no_project_falls_below_its_quota_while_others_can_give_even_if_more_is_freed_than_needed() -> None:
    """Each job of b fits exactly, but b would hold 2 of its 3; c borrows all that it holds."""
    work = (
        running(workload("b1", "b", 2000), "n1", 0, started=8),
        running(workload("b2", "b", 2000), "n1", 2, started=9),
        running(workload("c1", "c", 4000), "n2", started=1),
    )
    teams = (project("a", 2000), project("b", 3000), project("c", 0))
    decision = decide((node("n1", 4), node("n2", 4)), teams, *work, workload("new", "a", 2000))
    assert victims(decision) == ["c1"]


def test_where_a_project_must_fall_below_its_quota_only_what_no_quota_covers_goes() -> None:
    """Without either job b holds less than its 4; the quota covers the small one, which would free less in vain."""
    work = (
        running(workload("own", "a", 3000, interactive=True), "n1", 0),
        running(workload("covered", "b", 2000), "n1", 3, started=1),
        running(workload("borrowed", "b", 3000), "n1", 5, started=2),
    )
    teams = (project("a", 4000), project("b", 4000))
    decision = decide((node("n1", 8),), teams, *work, workload("new", "a", 1000))
    assert victims(decision) == ["borrowed"]


def test_what_a_quota_covers_stays_where_it_alone_could_make_room() -> None:
    """b borrows, but not on the node that the claim needs: there is only what its quota covers, and nothing moves."""
    work = (
        running(workload("own", "a", 3000, interactive=True), "n1", 0),
        running(workload("covered", "b", 2000), "n1", 3, started=1),
        running(workload("borrowed", "b", 3000), "n2", 0, started=2),
    )
    here = Constraints(node_selector=(("place", "here"),))
    claim = workload("new", "a", 1000, constraints=here)
    nodes = (node("n1", 5, labels={"place": "here"}), node("n2", 3))
    teams = (project("a", 4000), project("b", 4000))
    still = Settings(max_consolidation_victims=0)
    assert victims(plan(Snapshot(nodes, teams, (*work, claim), 0, still))) == []


def test_no_gpu_is_freed_for_nothing_although_more_pods_go() -> None:
    work = (
        running(workload("one", "b", 1000), "n1", 0, started=1),
        running(workload("two", "b", 1000), "n1", 1, started=2),
        running(workload("three", "b", 3000), "n2", started=3),
    )
    teams = (project("a", 2000), project("b", 0))
    decision = decide((node("n1", 2), node("n2", 3)), teams, *work, workload("new", "a", 2000))
    assert victims(decision) == ["one", "two"]


def test_what_a_quota_covers_goes_after_what_it_does_not_although_more_pods_go() -> None:
    work = (
        running(workload("covered", "b", 2000), "n1", 0, started=1),
        running(workload("borrowed", "b", 1000, pods=2, gang=True), "n1", 2, started=2),
    )
    teams = (project("a", 2000), project("b", 2000))
    decision = decide((node("n1", 4),), teams, *work, workload("new", "a", 2000))
    assert victims(decision) == ["borrowed"]


def test_inside_a_project_two_of_the_lowest_priority_go_before_one_of_a_higher() -> None:
    work = (
        running(workload("low-1", "a", 1000, priority=10), "n1", 0),
        running(workload("low-2", "a", 1000, priority=10), "n1", 1),
        running(workload("middle", "a", 2000, priority=20), "n1", 2),
    )
    decision = decide((node("n1", 4),), (project("a", 4000),), *work, workload("new", "a", 2000, priority=30))
    assert victims(decision) == ["low-1", "low-2"]


def test_for_a_limit_too_no_project_falls_below_its_quota_while_others_can_give() -> None:
    """The department is at its limit; the job of b is what is missing, but b would hold nothing of its 1."""
    teams = (
        project("d", 5000, limit_gpu_milli=5000),
        project("a", 2000, parent="d"),
        project("b", 1000, parent="d"),
        project("c", 0, parent="d"),
    )
    work = (
        running(workload("b1", "b", 2000), "n1", 0, started=9),
        running(workload("c1", "c", 3000), "n1", 2, started=1),
    )
    decision = decide((node("n1", 8),), teams, *work, workload("new", "a", 2000))
    assert victims(decision) == ["c1"]


def test_for_a_tree_of_gangs_too_no_project_falls_below_its_quota_while_others_can_give() -> None:
    """The job of b is the first to be looked at, as b has the lower priority."""
    teams = (project("a", 2000), project("b", 1000, priority=-1, over_quota_weight=0), project("c", 0))
    work = (
        running(workload("b1", "b", 2000), "n1", 0, started=9),
        running(workload("c1", "c", 2000), "n2", 0, started=1),
    )
    together = TopologyRule(("kubernetes.io/hostname",), required="kubernetes.io/hostname")
    new = workload("new", "a", 1000, pods=2, gang=True)
    pods = tuple(replace(pod, sub_group="workers") for pod in new.pods)
    new = replace(new, pods=pods, groups=SubGroup("new", None, (SubGroup("workers", 2, topology=together),)))
    nodes = tuple(node(name, 2, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2"))
    assert victims(decide(nodes, teams, *work, new)) == ["c1"]


def test_of_very_many_ways_to_make_room_the_one_that_loses_the_least_work_is_found() -> None:
    """There are 495 ways to choose four of twelve, in whatever order the jobs come; not all are looked at."""
    work = [running(workload(f"w{index}", "b", 1000), "n1", index, started=index + 1) for index in range(12)]
    teams = (project("a", 4000), project("b", 0))
    for order in (work, work[::-1]):
        decision = decide((node("n1", 12),), teams, *order, workload("new", "a", 4000))
        assert victims(decision) == ["w10", "w11", "w8", "w9"]


def test_the_order_of_the_pods_in_a_workload_does_not_change_the_plan() -> None:
    elastic = workload("elastic", "a", 1000, pods=12, minimum=1)
    shuffled = replace(elastic, pods=elastic.pods[::-1])
    teams = (project("a", 3000),)
    first, second = (decide((node("n1", 3),), teams, work) for work in (elastic, shuffled))
    assert first == second
    assert [binding.pod for binding in first.bindings] == ["elastic-0", "elastic-1", "elastic-2"]


def test_evictions_and_moves_together_make_room_that_a_quota_promises() -> None:
    """Of the job that borrows and the one that b's quota covers, on one node, the one is evicted, the other moved."""
    work = (
        running(workload("lent", "c", 2000), "n1", 0),
        running(workload("b1", "b", 2000), "n1", 2),
        running(workload("b2", "b", 2000, interactive=True), "n2", 0),
    )
    teams = (project("a", 4000), project("b", 4000), project("c", 0))
    decision = decide((node("n1", 4), node("n2", 4)), teams, *work, workload("new", "a", 4000))
    assert {eviction.workload: eviction.rule for eviction in decision.evictions} == {
        "lent": "quota",
        "b1": "consolidation",
    }
    assert {(place.workload, place.node) for place in decision.nominations} == {("new", "n1"), ("b1", "n2")}


def test_where_no_single_node_can_be_cleared_several_are_packed_anew() -> None:
    """Whoever moves has to get the room of somebody who borrows on the other node."""
    work = (
        running(workload("c1", "c", 2000), "n1", 0),
        running(workload("b1", "b", 2000), "n1", 2),
        running(workload("c2", "c", 2000), "n2", 0),
        running(workload("b2", "b", 2000), "n2", 2),
    )
    teams = (project("a", 4000), project("b", 4000), project("c", 0))
    decision = decide((node("n1", 4), node("n2", 4)), teams, *work, workload("new", "a", 4000))
    assert {"c1", "c2"} < set(victims(decision))
    assert sorted(eviction.rule for eviction in decision.evictions) == ["consolidation", "quota", "quota"]


@pytest.mark.parametrize(("cap", "moved"), [(1, []), (2, ["m1", "m2"])])
def test_no_more_are_moved_for_one_than_the_cap_allows(cap: int, moved: list[str]) -> None:
    work = (
        running(workload("m1", "a", 1000), "n1", 0),
        running(workload("m2", "a", 1000), "n1", 1),
        running(workload("stays", "a", 2000, interactive=True), "n2"),
        workload("new", "a", 4000),
    )
    settings = Settings(max_consolidation_victims=cap)
    decision = plan(Snapshot((node("n1", 4), node("n2", 4)), (project("a", 8000),), work, 0, settings))
    assert victims(decision) == moved


def test_nobody_is_moved_for_work_beyond_a_quota_before_quotas_are_served() -> None:
    """For the job of b, m1 would move into the room that the quota of a needs, with that of its victim."""
    work = (
        running(workload("stays", "d", 2000, interactive=True), "n1", 0),
        running(workload("m1", "b", 1000), "n1", 2),
        running(workload("lent", "b", 3000), "n2"),
        workload("more", "b", 2000, age=1),
        workload("new", "a", 4000, age=2),
    )
    teams = (project("a", 4000), project("b", 0), project("d", 2000))
    decision = decide((node("n1", 4), node("n2", 4)), teams, *work)
    assert {eviction.workload: eviction.rule for eviction in decision.evictions} == {"lent": "quota"}
