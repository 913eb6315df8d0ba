"""The advantages of muster over the schedulers in guarantees.md: one test for each sentence there."""

from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import (
    Plan,
    Pod,
    PodState,
    Project,
    Snapshot,
    SubGroup,
    TopologyRule,
    Waiting,
    Workload,
)
from orchestrator.planner.settings import Settings
from tests.planner.builders import Cluster, node, project, workload


def running(new: Workload, place: str, first: int = 0, *, started: int = 1) -> Workload:
    """Return the workload with its pods side by side on one node, from this device on."""
    pods: list[Pod] = []
    for pod in new.pods:
        devices = tuple(range(first, first + (pod.request.gpu_count or 1)))
        first += len(devices)
        pods.append(replace(pod, state=PodState.ALLOCATED, node=place, devices=devices))
    return replace(new, pods=tuple(pods), started_at_us=started, created_at_us=started)


def decide(
    nodes: list[str], projects: list[Project], workloads: list[Workload], *, gpus: int = 8, now_us: int = 0
) -> Plan:
    return plan(
        Snapshot(tuple(node(name, gpus) for name in nodes), tuple(projects), tuple(workloads), now_us)
    )


def victims(decision: Plan) -> list[str]:
    return sorted({each.workload for each in decision.evictions})


def test_of_equal_sets_the_fewest_pods_and_then_the_youngest_are_evicted() -> None:
    """Two nodes could free four GPUs each: the first by two victims, the second by one."""
    lent = [
        running(workload("young-a", "b", 2000), "node-1", 0, started=90),
        running(workload("young-b", "b", 2000), "node-1", 2, started=91),
        running(workload("old", "b", 4000), "node-2", 0, started=10),
    ]
    decision = decide(
        ["node-1", "node-2"],
        [project("a", 8000), project("b", 0)],
        [*lent, workload("new", "a", 4000)],
        gpus=4,
    )
    assert victims(decision) == ["old"]
    single = [running(workload(f"w{each}", "b", 1000), "node-1", each, started=each + 1) for each in range(4)]
    decision = decide(
        ["node-1"], [project("a", 4000), project("b", 0)], [*single, workload("new", "a", 1000)], gpus=4
    )
    assert victims(decision) == ["w3"], "the youngest has the least to lose"


def test_nothing_is_borrowed_that_a_workload_within_its_quota_frees() -> None:
    """Two GPUs are free and two are borrowed. If a job of b borrowed the free GPUs too, they would be reclaimed next,
    or a minimum runtime would protect the job.
    """
    decision = decide(
        ["node-1"],
        [project("a", 4000), project("b", 0, over_quota_weight=1, reclaim_min_runtime_seconds=600)],
        [
            running(workload("lent", "b", 2000), "node-1"),
            workload("next", "b", 2000, age=3_590_000_000),
            workload("mine", "a", 4000, age=3_591_000_000),
        ],
        gpus=4,
        now_us=3_600_000_000,
    )
    assert decision.bindings == ()
    assert victims(decision) == ["lent"]
    assert [each.workload for each in decision.nominations] == ["mine"]


@pytest.mark.parametrize("count", [1, 40])
def test_the_victim_of_a_large_workload_frees_the_gpus_of_a_small_one_too(count: int) -> None:
    """Notebooks of 1 GPU and trainings of 6 are within one quota. On each node, borrowed jobs of 7 and 1 run."""
    names = [f"node-{number}" for number in range(count)]
    lent = [
        running(workload(f"{size}-{name}", "b", gpus), name, first, started=started)
        for name in names
        for size, gpus, first, started in (("large", 7000, 0, 1), ("small", 1000, 7, 2))
    ]
    waiting = [
        job
        for number in range(count)
        for job in (
            workload(f"notebook-{number}", "a", 1000, interactive=True, age=3),
            workload(f"training-{number}", "a", 6000, age=4),
        )
    ]
    decision = decide(
        names, [project("a", 8000 * count), project("b", 0, over_quota_weight=1)], [*lent, *waiting]
    )
    assert victims(decision) == sorted(f"large-{name}" for name in names)
    assert {each.workload for each in decision.nominations} == {job.id for job in waiting}


def test_work_that_a_quota_covers_is_never_evicted_for_another_project_not_even_in_part() -> None:
    """The quota of b covers the first two pods. Only pods beyond them may be evicted, although a wants more."""
    elastic = running(workload("grown", "b", 1000, pods=4, minimum=1), "node-1")
    decision = decide(
        ["node-1"], [project("a", 4000), project("b", 2000)], [elastic, workload("new", "a", 2000)], gpus=4
    )
    assert sorted(each.pod for each in decision.evictions) == ["grown-2", "grown-3"]
    decision = decide(
        ["node-1"], [project("a", 4000), project("b", 2000)], [elastic, workload("new", "a", 3000)], gpus=4
    )
    assert decision.evictions == ()


def test_a_job_within_quota_keeps_running_although_it_is_younger_than_a_borrowed_one() -> None:
    mine = [
        running(workload("large", "b", 3000), "node-1", 0, started=1),
        running(workload("small", "b", 1000), "node-1", 3, started=2),
    ]
    decision = decide(
        ["node-1"], [project("a", 3000), project("b", 1000)], [*mine, workload("new", "a", 1000)], gpus=4
    )
    assert victims(decision) == ["large"]


def test_amounts_are_exact_so_a_tenth_and_two_tenths_fit_a_quota_of_three() -> None:
    cluster = Cluster([node("node-1", 1)], [project("a", 300)])
    cluster.submit(workload("tenth", "a", 100, interactive=True))
    cluster.submit(workload("fifth", "a", 200, interactive=True))
    cluster.submit(workload("more", "a", 100, interactive=True))
    last = cluster.settle()
    assert cluster.held() == {"a": 300}
    assert last.pending["more"].code is Waiting.OVER_QUOTA


def test_no_decision_evicts_a_workload_that_would_reclaim_it() -> None:
    """The project with the higher priority is over its share, so its GPUs are reclaimed in the first decision; the
    third keeps its share.
    """
    lent = [
        *(running(workload(f"a{each}", "a", 1000), "node-1", each, started=each + 1) for each in range(2)),
        *(
            running(workload(f"c{each}", "c", 1000), "node-1", each + 2, started=each + 5)
            for each in range(2)
        ),
    ]
    projects = [
        project("a", 1000),
        project("b", 1000),
        project("c", 1000, priority=1, over_quota_weight=0),
    ]
    cluster = Cluster([node("node-1", 4)], projects)
    cluster.workloads = {each.id: each for each in (*lent, workload("new", "b", 1000, age=9))}
    cluster.settle()
    assert cluster.evicted == ["c1"]


def test_no_workload_is_overtaken_by_a_younger_one_of_the_same_project() -> None:
    """The older job exceeds the quota and the younger fits in it. Only one of them fits on the cluster."""
    decision = decide(
        ["node-1"],
        [project("a", 1000)],
        [workload("older", "a", 4000, age=1), workload("younger", "a", 1000, age=2)],
        gpus=4,
    )
    assert {each.workload for each in decision.bindings} == {"older"}


def test_evictions_of_one_decision_can_be_capped() -> None:
    lent = [running(workload(f"w{each}", "b", 1000), "node-1", each, started=each + 1) for each in range(4)]
    requested = [workload(f"new-{each}", "a", 1000, age=each) for each in range(4)]
    snapshot = Snapshot(
        (node("node-1", 4),),
        (project("a", 4000), project("b", 0)),
        (*lent, *requested),
        0,
        Settings(max_evictions=2),
    )
    assert len(plan(snapshot).evictions) == 2


@pytest.mark.parametrize(("ran_seconds", "evicted"), [(59, 0), (60, 1)])
def test_a_project_can_be_sure_of_a_minimum_runtime(ran_seconds: int, evicted: int) -> None:
    lent = running(workload("lent", "b", 4000), "node-1", started=1)
    decision = decide(
        ["node-1"],
        [project("a", 4000), project("b", 0, reclaim_min_runtime_seconds=60)],
        [lent, workload("new", "a", 1000)],
        gpus=4,
        now_us=1 + ran_seconds * 1_000_000,
    )
    assert len(decision.evictions) == evicted


def test_a_migrated_pod_has_a_nomination_before_its_eviction() -> None:
    """Two halves of different nodes are free: one job is migrated, with a nomination, and the large one fits."""
    mine = [running(workload("x", "a", 2000), "node-1", 0), running(workload("y", "a", 2000), "node-2", 0)]
    decision = decide(["node-1", "node-2"], [project("a", 8000)], [*mine, workload("new", "a", 4000)], gpus=4)
    assert [each.rule for each in decision.evictions] == ["consolidation"]
    assert {each.workload for each in decision.nominations} == {"new", decision.evictions[0].workload}


def test_more_urgent_work_of_a_project_takes_the_place_of_less_urgent() -> None:
    mine = [running(workload("low", "a", 4000, priority=40), "node-1")]
    decision = decide(["node-1"], [project("a", 4000)], [*mine, workload("high", "a", 2000)], gpus=4)
    assert [(each.workload, each.rule) for each in decision.evictions] == [("low", "priority")]


def test_a_gang_that_lost_a_member_is_given_up_after_the_grace_period() -> None:
    whole = running(workload("gang", "a", 1000, pods=3, gang=True), "node-1")
    left = (*whole.pods[:2], replace(whole.pods[2], state=PodState.PENDING, node=None, devices=()))
    hole = running(workload("other", "b", 2000, interactive=True), "node-1", 2)
    for now_us, gone in ((59_000_000, 0), (61_000_000, 2)):
        broken = replace(whole, pods=left, stale_since_us=1)
        decision = decide(
            ["node-1"], [project("a", 2000), project("b", 2000)], [broken, hole], gpus=4, now_us=now_us
        )
        assert len(decision.evictions) == gone


def test_a_tree_of_gangs_starts_when_each_branch_has_its_minimum() -> None:
    tree = SubGroup("job", None, (SubGroup("leader", 1), SubGroup("workers", 2)))
    members = [("leader", 1), ("workers", 1), ("workers", 1), ("workers", 1)]
    pods = tuple(
        replace(workload(f"p{index}", "a", 1000 * size).pods[0], sub_group=group)
        for index, (group, size) in enumerate(members)
    )
    job = replace(workload("job", "a", 1000), pods=pods, groups=tree)
    assert decide(["node-1"], [project("a", 8000)], [job], gpus=2).bindings == ()
    assert len(decide(["node-1"], [project("a", 8000)], [job], gpus=3).bindings) == 3
    assert len(decide(["node-1"], [project("a", 8000)], [job], gpus=4).bindings) == 4


@pytest.mark.parametrize(("required", "started"), [("rack", 0), ("zone", 4)])
def test_a_required_topology_level_holds_for_the_whole_gang(required: str, started: int) -> None:
    racks = [node(f"node-{each}", 2, labels={"zone": "z", "rack": f"r{each // 2}"}) for each in range(4)]
    busy = [running(workload(f"busy-{each}", "b", 1000), f"node-{each}") for each in (0, 2)]
    job = replace(
        workload("job", "a", 1000, pods=4, gang=True),
        topology=TopologyRule(("zone", "rack"), required=required),
    )
    decision = plan(
        Snapshot(tuple(racks), (project("a", 6000), project("b", 2000)), (*busy, job), 0, Settings(0))
    )
    assert len(decision.bindings) == started
