"""The choice of victims: first quotas, then no unneeded GPUs, then few pods, then little lost GPU time."""

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
    """Each job of b fits exactly, but b would keep 2 GPUs of its quota of 3. c borrows all its GPUs."""
    work = (
        running(workload("b1", "b", 2000), "n1", 0, started=8),
        running(workload("b2", "b", 2000), "n1", 2, started=9),
        running(workload("c1", "c", 4000), "n2", started=1),
    )
    teams = (project("a", 2000), project("b", 3000), project("c", 0))
    decision = decide((node("n1", 4), node("n2", 4)), teams, *work, workload("new", "a", 2000))
    assert victims(decision) == ["c1"]


def test_where_a_project_must_fall_below_its_quota_only_pods_over_quota_are_evicted() -> None:
    """Without either job, b holds less than its quota of 4. The small job is within the quota, and its eviction
    frees fewer unneeded GPUs.
    """
    work = (
        running(workload("own", "a", 3000, interactive=True), "n1", 0),
        running(workload("covered", "b", 2000), "n1", 3, started=1),
        running(workload("borrowed", "b", 3000), "n1", 5, started=2),
    )
    teams = (project("a", 4000), project("b", 4000))
    decision = decide((node("n1", 8),), teams, *work, workload("new", "a", 1000))
    assert victims(decision) == ["borrowed"]


def test_a_pod_within_quota_keeps_running_although_it_alone_would_be_enough() -> None:
    """b borrows, but not on the node that the job needs: there it has only pods within quota,
    and nothing is migrated.
    """
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


def test_pods_within_quota_are_evicted_after_those_over_quota_although_more_pods_are_evicted() -> None:
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


def test_preempt_evicts_the_lowest_priority_although_more_is_freed() -> None:
    work = (
        running(workload("low", "a", 3000, priority=10), "n1", 0),
        running(workload("middle", "a", 2000, priority=20), "n1", 3),
    )
    decision = decide((node("n1", 5),), (project("a", 5000),), *work, workload("new", "a", 2000, priority=30))
    assert victims(decision) == ["low"]


NOW_US = 100 * 3600 * 1_000_000
"""100 hours after the earliest time in a test."""


def ago(
    new: Workload, place: str, first: int = 0, *, minutes: int, age_minutes: int | None = None
) -> Workload:
    """Return the workload, started this many minutes before NOW_US. With `age_minutes`, it is older and was started
    again.
    """
    started = NOW_US - minutes * 60 * 1_000_000
    created = started if age_minutes is None else NOW_US - age_minutes * 60 * 1_000_000
    return replace(running(new, place, first, started=started), created_at_us=created)


def victims_now(nodes: Iterable[Node], *work: Workload) -> list[str]:
    """Return the victims at NOW_US for a project `a` with a quota of 8 GPUs. The other projects have no quota."""
    names = sorted({each.project for each in work} - {"a"})
    teams = (project("a", 8000), *(project(name, 0) for name in names))
    return victims(plan(Snapshot(tuple(nodes), teams, work, NOW_US)))


def test_the_least_gpu_time_is_lost_although_more_pods_are_evicted() -> None:
    """76 GPU-hours of one job, or 8 GPU-minutes of two jobs."""
    work = (
        ago(workload("long", "b", 8000), "n1", minutes=570),
        ago(workload("fresh1", "b", 4000), "n2", 0, minutes=1),
        ago(workload("fresh2", "b", 4000), "n2", 4, minutes=1),
    )
    assert victims_now((node("n1"), node("n2")), *work, workload("new", "a", 8000, age=NOW_US)) == [
        "fresh1",
        "fresh2",
    ]


def test_the_gpu_time_of_all_pods_of_a_gang_counts() -> None:
    """The gang has run for 30 minutes on 8 GPUs. Each of two single jobs has run for 9 minutes on 4, so both jobs
    together lose less.
    """
    gang = ago(workload("gang", "b", 4000, pods=2, gang=True), "n1", minutes=30)
    singles = [ago(workload(f"s{index}", "c", 4000), "n2", 4 * index, minutes=9) for index in range(2)]
    new = workload("new", "a", 8000, age=NOW_US)
    assert victims_now((node("n1"), node("n2")), gang, *singles, new) == ["s0", "s1"]


def test_gpu_times_of_one_class_are_alike() -> None:
    """120 GPU-minutes of one job and 80 of two others: the number of pods decides."""
    work = (
        ago(workload("one", "b", 8000), "n1", minutes=15),
        ago(workload("two1", "b", 4000), "n2", 0, minutes=10),
        ago(workload("two2", "b", 4000), "n2", 4, minutes=10),
    )
    assert victims_now((node("n1"), node("n2")), *work, workload("new", "a", 8000, age=NOW_US)) == ["one"]


def test_of_the_jobs_on_one_node_the_one_that_has_just_started_is_evicted() -> None:
    """Each of the two jobs has one GPU. The job that started again is older in the queue."""
    work = (
        ago(workload("long", "b", 1000), "n1", 0, minutes=5000),
        ago(workload("fresh", "b", 1000), "n1", 1, minutes=2, age_minutes=5900),
    )
    assert victims_now((node("n1", 2),), *work, workload("new", "a", 1000, age=NOW_US)) == ["fresh"]


@pytest.mark.parametrize("nodes", [("n1", "n1"), ("n1", "n2")], ids=["one node", "two nodes"])
def test_a_job_that_started_again_keeps_its_age(nodes: tuple[str, str]) -> None:
    """Each of the two jobs has run for an hour. The job that was evicted before was created four days earlier."""
    work = (
        ago(workload("again", "b", 2000), nodes[0], 0, minutes=59, age_minutes=5000),
        ago(workload("first", "b", 2000), nodes[1], 2, minutes=60),
    )
    cluster = (node("n1", 4),) if nodes[0] == nodes[1] else (node("n1", 2), node("n2", 4))
    own = running(workload("own", "a", 2000, interactive=True), "n2", 0)
    others = () if nodes[0] == nodes[1] else (own,)
    assert victims_now(cluster, *work, *others, workload("new", "a", 2000, age=NOW_US)) == ["first"]


def test_of_a_project_the_lowest_priority_is_evicted_although_it_loses_more_time() -> None:
    work = (
        ago(workload("low", "b", 1000, priority=10), "n1", 0, minutes=5000),
        ago(workload("high", "b", 1000, priority=20), "n1", 1, minutes=2),
    )
    assert victims_now((node("n1", 2),), *work, workload("new", "a", 1000, age=NOW_US)) == ["low"]


def test_elastic_pods_lose_no_gpu_time() -> None:
    """The elastic job continues without its last pod. The single job would lose two hours."""
    work = (
        ago(workload("elastic", "b", 1000, pods=2, minimum=1), "n1", 0, minutes=5000),
        ago(workload("single", "b", 1000), "n1", 2, minutes=120),
    )
    decision = plan(
        Snapshot(
            (node("n1", 3),),
            (project("a", 8000), project("b", 0)),
            (*work, workload("new", "a", 1000, age=NOW_US)),
            NOW_US,
        )
    )
    assert [each.pod for each in decision.evictions] == ["elastic-1"]


def test_of_two_jobs_the_one_that_has_just_started_is_migrated() -> None:
    work = (
        ago(workload("long", "a", 1000), "n1", 0, minutes=5000),
        ago(workload("fresh", "a", 1000), "n2", 0, minutes=2),
    )
    new = workload("new", "a", 2000, age=NOW_US)
    assert victims_now((node("n1", 2), node("n2", 2)), *work, new) == ["fresh"]


def test_for_a_limit_too_no_project_falls_below_its_quota_while_others_can_give() -> None:
    """The department is at its limit. The job of b would free exactly enough, but b would keep nothing of its quota of
    1.
    """
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
    """The job of b is tried first, because b has the lower priority."""
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


def test_of_very_many_sets_of_victims_the_one_that_loses_the_least_is_found() -> None:
    """There are 495 ways to choose four of twelve jobs, in any order of the jobs. Not all of them are tried."""
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


def test_evictions_and_migrations_together_free_gpus_for_a_quota() -> None:
    """On one node are a job that borrows and a job within b's quota: the first is evicted, the second is migrated."""
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


def test_a_migration_and_an_eviction_replace_two_evictions() -> None:
    """One job of 3 GPUs would be evicted for each pod of the gang. With p1 or p2 on n2, one
    victim is enough for both.
    """
    work = (
        *(running(workload(f"p{index}", "p", 1000), "n1", index, started=index + 1) for index in range(2)),
        running(workload("b1", "b", 3000), "n1", 2, started=3),
        running(workload("b2", "b", 3000), "n1", 5, started=4),
        workload("new", "a", 2000, pods=2, gang=True),
    )
    teams = (project("a", 4000), project("p", 4000), project("b", 0))
    decision = decide((node("n1", 8), node("n2", 1)), teams, *work)
    assert {each.workload: each.rule for each in decision.evictions} == {"b2": "quota", "p1": "consolidation"}


def test_migrations_replace_the_eviction_of_one_of_three_projects() -> None:
    work = (
        *(running(workload(f"p{index}", "p", 1000), "n1", index, started=index + 1) for index in range(2)),
        *(
            running(workload(name, name, 2000), "n1", 2 + 2 * index, started=9)
            for index, name in enumerate("bcd")
        ),
        workload("new", "a", 6000),
    )
    teams = (project("a", 6000), project("p", 2000), project("b", 0), project("c", 0), project("d", 0))
    decision = decide((node("n1", 8), node("n2", 1), node("n3", 1)), teams, *work)
    rules = sorted(each.rule for each in decision.evictions)
    assert rules == ["consolidation", "consolidation", "quota", "quota"]


def test_no_migration_replaces_an_eviction_if_no_gpu_is_free() -> None:
    work = (
        running(workload("p1", "p", 1000), "n1", 0, started=1),
        running(workload("b1", "b", 1000), "n1", 1, started=2),
        running(workload("b2", "b", 2000), "n1", 2, started=3),
        running(workload("p2", "p", 1000), "n2", 0, started=4),
        workload("new", "a", 3000),
    )
    teams = (project("a", 3000), project("p", 2000), project("b", 0))
    decision = decide((node("n1", 4), node("n2", 1)), teams, *work)
    assert {each.workload: each.rule for each in decision.evictions} == {"b1": "quota", "b2": "quota"}


def test_a_pod_within_quota_is_not_evicted_although_its_project_holds_more() -> None:
    """b holds 7 GPUs with a quota of 4, which covers the two small jobs. The job needs 2 GPUs more than are free."""
    work = (
        running(workload("large", "b", 5000), "n1", 0, started=1),
        running(workload("small1", "b", 1000), "n1", 5, started=2),
        running(workload("small2", "b", 1000), "n1", 6, started=3),
    )
    teams = (project("a", 3000), project("b", 4000))
    decision = decide((node("n1", 8),), teams, *work, workload("new", "a", 3000))
    assert victims(decision) == ["large"]


def test_a_claim_is_pending_if_all_possible_victims_are_within_quota() -> None:
    """The gang of c on n1 is borrowed. The job fits only on n2, where c is within its quota."""
    here = Constraints(node_selector=(("place", "here"),))
    work = (
        running(workload("gang", "c", 1000, pods=6, gang=True), "n1", 0, started=1),
        running(workload("small", "c", 1000), "n2", 0, started=2),
        workload("new", "a", 1000, constraints=here),
    )
    nodes = (node("n1", 6), node("n2", 1, labels={"place": "here"}))
    decision = decide(nodes, (project("a", 0, over_quota_weight=5), project("c", 2000)), *work)
    assert victims(decision) == []


def test_where_no_single_node_can_be_cleared_several_are_packed_anew() -> None:
    """A migrated pod must get the GPUs of a borrower on the other node."""
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


def test_no_pod_is_migrated_for_workloads_over_quota_before_quotas_are_served() -> None:
    """For the job of b, m1 would be migrated to GPUs that a's quota needs together with those of its victim."""
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
