"""Projects whose jobs request no GPU get their portion of the CPUs, and no rule on GPUs delays them."""

from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.accounting.amounts import Figures
from orchestrator.planner.model import UNLIMITED, PodState, Request, Snapshot, Workload
from orchestrator.planner.ordering import is_over_share, priority_key
from orchestrator.planner.preemption.victims import restores_quota
from tests.planner.builders import Cluster, node, project, workload

CPU = 1000


def job(name: str, owner: str, cpus: int, *, gpus: int = 0, pods: int = 1, age: int = 0) -> Workload:
    """Return a workload whose pods request CPUs, and GPUs if `gpus` is given."""
    plain = workload(name, owner, gpus * 1000, age=age, pods=pods)
    request = Request(gpu_count=gpus, cpu_milli=cpus * CPU)
    return replace(plain, pods=tuple(replace(pod, request=request) for pod in plain.pods))


def running(new: Workload, place: str, first_gpu: int = 0) -> Workload:
    gpus = new.pods[0].request.gpu_count
    pods = tuple(
        replace(
            pod,
            state=PodState.ALLOCATED,
            node=place,
            devices=tuple(range(first_gpu + index * gpus, first_gpu + (index + 1) * gpus)),
        )
        for index, pod in enumerate(new.pods)
    )
    return replace(new, pods=pods, started_at_us=1)


def held_cpus(cluster: Cluster, name: str) -> int:
    return (
        sum(
            pod.request.cpu_milli
            for each in cluster.workloads.values()
            if each.project == name
            for pod in each.pods
            if pod.state is PodState.ALLOCATED
        )
        // CPU
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # quotas of both in CPUs, then the rest by weight
        ({"quota_cpu_milli": 0}, {"quota_cpu_milli": 0}, (8, 8)),
        ({"quota_cpu_milli": 0}, {"quota_cpu_milli": 0, "cpu_over_quota_weight": 3}, (4, 12)),
        ({"quota_cpu_milli": 2 * CPU}, {"quota_cpu_milli": 10 * CPU}, (4, 12)),
        ({"quota_cpu_milli": 0}, {"quota_cpu_milli": 0, "limit_cpu_milli": 5 * CPU}, (11, 5)),
        ({"quota_cpu_milli": 0}, {"quota_cpu_milli": 0, "priority": 1}, (0, 16)),
    ],
)
@pytest.mark.parametrize("gpu_weight", [0, 1])
def test_cpus_are_shared_in_any_order_of_arrival_and_with_any_entitlement_to_gpus(
    first: dict[str, int], second: dict[str, int], expected: tuple[int, int], gpu_weight: int
) -> None:
    projects = [
        project("a", 0, over_quota_weight=gpu_weight, **first),
        project("b", 0, over_quota_weight=gpu_weight, **second),
    ]
    cluster = Cluster([node("n1", 0, cpu_milli=8 * CPU), node("n2", 8, cpu_milli=8 * CPU)], projects)
    cluster.submit(job("w-a", "a", 1, pods=40))
    cluster.settle()
    assert held_cpus(cluster, "a") == 16
    cluster.submit(job("w-b", "b", 1, pods=40))
    cluster.settle()
    assert (held_cpus(cluster, "a"), held_cpus(cluster, "b")) == expected


@pytest.mark.parametrize(("quota_gpus", "evicted"), [(0, {"lent"}), (8, set())])
def test_without_a_bound_on_cpus_a_job_reclaims_them_from_borrowed_pods(
    quota_gpus: int, evicted: set[str]
) -> None:
    lent = running(job("lent", "b", 4, gpus=2), "n1")
    decision = plan(
        Snapshot(
            (node("n1", 8, cpu_milli=4 * CPU),),
            (project("a", 0), project("b", quota_gpus * 1000)),
            (lent, job("new", "a", 2)),
        )
    )
    assert {eviction.workload for eviction in decision.evictions} == evicted


def test_work_that_asks_for_no_gpu_is_not_evicted_for_want_of_a_quota_of_gpus() -> None:
    cpu_only = running(job("cpu-only", "b", 4), "n1")
    decision = plan(
        Snapshot(
            (node("n1", 8, cpu_milli=4 * CPU),),
            (project("a", 8000), project("b", 0)),
            (cpu_only, job("new", "a", 1, gpus=1)),
        )
    )
    assert decision.evictions == ()


@pytest.mark.parametrize(
    ("held_gpus", "quota_cpus", "lent_cpus", "evicted"),
    [(1, 4, 4, {"lent"}), (3, 4, 4, {"lent"}), (3, 1, 4, set()), (3, 4, 2, set())],
    ids=["within both quotas", "over that of GPUs", "over that of CPUs too", "nobody borrows CPUs"],
)
def test_a_request_for_cpus_is_judged_by_cpus_for_any_use_of_gpus(
    held_gpus: int, quota_cpus: int, lent_cpus: int, evicted: set[str]
) -> None:
    decision = plan(
        Snapshot(
            (node("n1", 8, cpu_milli=(lent_cpus + 1) * CPU),),
            (
                project("a", 2000, quota_cpu_milli=quota_cpus * CPU),
                project("b", 4000, quota_cpu_milli=2 * CPU),
            ),
            (
                running(job("own", "a", 0, gpus=held_gpus), "n1"),
                running(job("lent", "b", lent_cpus), "n1"),
                job("new", "a", 3),
            ),
        )
    )
    assert {eviction.workload for eviction in decision.evictions} == evicted


@pytest.mark.parametrize(("cpus", "gpus", "evicted"), [(4, 0, set()), (4, 1, {"victim"}), (0, 1, set())])
def test_a_victim_uses_a_resource_that_its_project_borrows(cpus: int, gpus: int, evicted: set[str]) -> None:
    """b borrows GPUs with a job that stays: CPUs of this job cannot be reclaimed unless its GPUs are too."""
    decision = plan(
        Snapshot(
            (node("n1", 8, cpu_milli=5 * CPU),),
            (project("a", 8000, quota_cpu_milli=8 * CPU), project("b", 0)),
            (
                replace(running(job("stays", "b", 1, gpus=2), "n1"), preemptible=False),
                running(job("victim", "b", cpus, gpus=gpus), "n1", 4),
                job("new", "a", 5 if cpus == 0 else 4, gpus=1),
            ),
        )
    )
    assert {eviction.workload for eviction in decision.evictions} == evicted


def test_gpus_over_the_share_do_not_put_a_project_last_for_cpus() -> None:
    figures = Figures(
        quota=(0, 4 * CPU, 0), limit=(9000,) * 3, share=(1000, 4 * CPU, 0), held=(3000, 1 * CPU, 0)
    )
    assert not is_over_share(figures)
    without_claim = figures._replace(quota=(0, 0, 0), share=(1000, 0, 0))
    ahead, behind = (
        priority_key(each, (0, CPU, 0), (8000, 8 * CPU, 0), priority=0, created_at_us=0, name="a")
        for each in (figures, without_claim)
    )
    assert ahead < behind


@pytest.mark.parametrize(("gpus", "cpus", "expected"), [(0, 3, True), (1, 3, False), (0, 5, False)])
def test_gpus_beyond_the_quota_are_no_reason_to_deny_cpus_within_it(
    gpus: int, cpus: int, expected: bool
) -> None:
    taker = Figures(quota=(2, 4, 0), limit=(UNLIMITED,) * 3, share=(9, 9, 9), held=(3, 0, 0))
    loser = Figures(quota=(4, 2, 0), limit=(UNLIMITED,) * 3, share=(9, 9, 9), held=(0, 4, 0))
    assert restores_quota(taker, (gpus, cpus, 0), loser, loser.held) is expected


HOG_AND_CLAIM = (
    running(job("hog", "b", 78), "n1"),
    job("want", "a", 8, gpus=8),
)


def evictions(
    *work: Workload, quota_gpus: int = 8, nodes: tuple[str, ...] = ("n1",), **b: object
) -> dict[str, str]:
    """Return the rule of each workload's eviction, on nodes of 8 GPUs and 80 CPUs, and on `cpu` without GPUs."""
    machines = tuple(node(name, 0 if name == "cpu" else 8) for name in nodes)
    projects = (project("a", quota_gpus * 1000), project("b", 0, **b))
    decision = plan(Snapshot(machines, projects, work))
    return {each.workload: each.rule for each in decision.evictions}


def test_pods_without_gpus_do_not_block_the_cpus_that_gpus_need() -> None:
    assert evictions(*HOG_AND_CLAIM) == {"hog": "quota"}
    cluster = Cluster([node("n1")], [project("a", 8000), project("b", 0)])
    cluster.workloads = {each.id: each for each in HOG_AND_CLAIM}
    cluster.settle()
    assert cluster.waiting() == {"hog"}
    assert cluster.evicted == ["hog"]


def test_pods_without_gpus_do_not_block_the_memory_that_gpus_need() -> None:
    hog = running(job("hog", "b", 1), "n1")
    request = Request(cpu_milli=CPU, memory_bytes=500 << 30)
    hog = replace(hog, pods=tuple(replace(pod, request=request) for pod in hog.pods))
    want = job("want", "a", 8, gpus=8)
    request = Request(gpu_count=8, cpu_milli=8 * CPU, memory_bytes=64 << 30)
    want = replace(want, pods=tuple(replace(pod, request=request) for pod in want.pods))
    assert evictions(hog, want) == {"hog": "quota"}


def test_only_as_many_pods_without_gpus_are_evicted_as_the_gpus_need() -> None:
    """Two nodes with GPUs run jobs of 30, 30 and 15 CPUs. A gang on both nodes needs 20 CPUs on each."""
    hogs = [
        running(job(f"{name}-{cpus}-{index}", "b", cpus), name)
        for name in ("n1", "n2")
        for index, cpus in enumerate((30, 30, 15))
    ]
    gang = replace(job("want", "a", 20, gpus=8, pods=2), min_member=2)
    gone = evictions(*hogs, gang, quota_gpus=16, nodes=("n1", "n2"))
    assert sorted(gone) == ["n1-15-2", "n2-15-2"]


def test_a_gang_without_gpus_is_evicted_as_a_whole() -> None:
    gang = replace(job("hog", "b", 39, pods=2), min_member=2)
    assert evictions(running(gang, "n1"), HOG_AND_CLAIM[1]) == {"hog": "quota"}


def test_a_claim_on_more_cpus_than_its_gpus_have_evicts_no_pod_without_gpus() -> None:
    assert evictions(HOG_AND_CLAIM[0], job("want", "a", 40, gpus=4)) == {"hog": "quota"}
    assert evictions(HOG_AND_CLAIM[0], job("want", "a", 41, gpus=4)) == {}


def test_beyond_the_quota_of_gpus_no_pod_without_gpus_is_evicted() -> None:
    assert evictions(*HOG_AND_CLAIM, quota_gpus=4) == {}


def test_a_quota_of_cpus_or_memory_protects_pods_without_gpus() -> None:
    assert evictions(*HOG_AND_CLAIM, quota_cpu_milli=78 * CPU) == {}
    assert evictions(*HOG_AND_CLAIM, quota_memory_bytes=1 << 40) == {}


def test_a_pod_without_gpus_that_is_not_preemptible_is_not_evicted() -> None:
    assert evictions(replace(HOG_AND_CLAIM[0], preemptible=False), HOG_AND_CLAIM[1]) == {}


def test_a_pod_on_a_node_without_gpus_keeps_its_cpus() -> None:
    """The gang's pod without GPUs fits on no node, because jobs without GPUs use the CPUs of the only other one."""
    hog = running(job("hog", "b", 78), "cpu")
    want = job("want", "a", 8, gpus=8)
    request = Request(cpu_milli=40 * CPU)
    launcher = replace(want.pods[0], id="launcher", name="launcher", request=request)
    worker = replace(want.pods[0], request=Request(gpu_count=8, cpu_milli=60 * CPU))
    gang = replace(want, pods=(worker, launcher), min_member=2)
    assert evictions(hog, gang, nodes=("n1", "cpu")) == {}
