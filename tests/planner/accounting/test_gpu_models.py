"""Quotas and limits for GPU models, as a table: pending workloads, victims, and the rule of each eviction."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from orchestrator.planner.accounting.coverage import coverage, filling_order
from orchestrator.planner.accounting.quota import gpu_model_excess
from orchestrator.planner.model import (
    GPU_MODEL_LABEL,
    UNLIMITED,
    Constraints,
    GpuModelBounds,
    Node,
    PodState,
    Project,
    Waiting,
    Workload,
)
from tests.planner.builders import Cluster, node, project, workload

V100, A100 = "Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-40GB"
ON_V100 = Constraints(node_selector=((GPU_MODEL_LABEL, V100),))


def nodes(*models: str) -> list[Node]:
    """Return one node of four GPUs for each model."""
    return [node(f"node-{at}", 4, labels={GPU_MODEL_LABEL: model}) for at, model in enumerate(models)]


def with_models(name: str, gpus: int, **bounds: tuple[int | None, int | None]) -> Project:
    """Return a project with a total quota, and a pair (quota, limit) for `v100` or `a100`, in devices."""
    names = {"v100": V100, "a100": A100}
    models = tuple(
        GpuModelBounds(names[model], *(None if each is None else each * 1000 for each in (quota, limit)))
        for model, (quota, limit) in bounds.items()
    )
    return project(name, gpus * 1000, gpu_models=models)


def running(name: str, team: str, place: str, gpus: int, first: int = 0, *, age: int = 1) -> Workload:
    """Return a job of one pod that runs on GPUs of a node, and could run on any node."""
    new = workload(name, team, gpus * 1000)
    pod = replace(
        new.pods[0], state=PodState.ALLOCATED, node=place, devices=tuple(range(first, first + gpus))
    )
    return replace(new, pods=(pod,), started_at_us=age, created_at_us=age)


def cluster(machines: list[Node], projects: list[Project], *work: Workload) -> Cluster:
    made = Cluster(machines, projects)
    made.workloads = {each.id: each for each in work}
    return made


@dataclass(frozen=True)
class Claim:
    """Team b runs two jobs on four V100s within its total quota, and c borrows all A100s. Team a asks for V100s."""

    quota_a: int
    quota_b: int | None
    requested: int
    evicted: bool


@pytest.mark.parametrize(
    "case",
    [
        Claim(quota_a=2, quota_b=None, requested=2, evicted=True),
        Claim(quota_a=2, quota_b=0, requested=2, evicted=True),
        Claim(quota_a=2, quota_b=2, requested=2, evicted=True),
        Claim(quota_a=2, quota_b=None, requested=3, evicted=False),
        Claim(quota_a=0, quota_b=2, requested=2, evicted=False),
    ],
)
def test_a_quota_for_a_model_is_served_by_projects_without_one(case: Claim) -> None:
    bounds = {} if case.quota_b is None else {"v100": (case.quota_b, None)}
    made = cluster(
        nodes(V100, A100),
        [with_models("a", 3, v100=(case.quota_a, None)), with_models("b", 4, **bounds), project("c", 0)],
        running("lent-0", "b", "node-0", 2, 0),
        running("lent-1", "b", "node-0", 2, 2, age=2),
        running("borrowed", "c", "node-1", 4),
        workload("new", "a", case.requested * 1000, constraints=ON_V100, age=9),
    )
    decision = made.step()
    assert [each.rule for each in decision.evictions] == ["quota"] * case.evicted
    if not case.evicted:
        return
    assert f"GPUs of {V100}, over its quota" in decision.evictions[0].message
    made.settle()
    assert made.held() == {"a": case.requested * 1000, "b": 4000, "c": 0}, (
        "b has as many GPUs of the other model"
    )
    assert made.evicted == ["lent-1", "borrowed"]


def test_pods_within_the_quota_for_the_model_are_never_evicted() -> None:
    """The total quota of b would cover its older job, and its quota for the model covers the younger one."""
    made = cluster(
        nodes(V100, A100),
        [with_models("a", 4, v100=(2, None)), with_models("b", 2, v100=(2, None)), project("c", 2000)],
        running("older", "b", "node-1", 4),
        running("on-v100", "b", "node-0", 2),
        workload("first", "a", 2000, constraints=ON_V100, age=8),
        workload("second", "a", 2000, constraints=ON_V100, age=9),
    )
    last = made.settle()
    assert made.evicted == []
    assert set(last.pending) == {"second"}
    assert last.pending["second"].code is Waiting.CLUSTER_FULL


@pytest.mark.parametrize(
    ("limit", "held", "code"), [(4, 4, None), (3, 0, Waiting.PROJECT_LIMIT), (2, 0, Waiting.PROJECT_LIMIT)]
)
def test_a_limit_for_a_model_holds(limit: int, held: int, code: Waiting | None) -> None:
    made = cluster(nodes(V100, A100), [with_models("a", 8, v100=(None, limit))])
    made.submit(workload("gang", "a", 1000, pods=4, gang=True, constraints=ON_V100))
    last = made.settle()
    assert made.held() == {"a": held * 1000}
    assert (last.pending["gang"].code if "gang" in last.pending else None) is code


def test_beyond_its_limit_for_a_model_a_project_continues_with_others() -> None:
    made = cluster(nodes(V100, A100), [with_models("a", 8, v100=(None, 1))])
    made.submit(workload("jobs", "a", 1000, pods=8))
    made.settle()
    placed = [pod.node for pod in made.workloads["jobs"].pods if pod.node]
    assert sorted(placed) == ["node-0", *["node-1"] * 4]


def test_workloads_that_fit_anywhere_avoid_models_with_quotas_of_others() -> None:
    made = cluster(nodes(V100, A100), [with_models("a", 4, v100=(4, None)), with_models("b", 4)])
    made.submit(workload("anywhere", "b", 1000, pods=4))
    made.submit(workload("bound", "a", 1000, pods=4, constraints=ON_V100))
    made.settle()
    assert made.evicted == []
    assert {pod.node for pod in made.workloads["anywhere"].pods} == {"node-1"}


@pytest.mark.parametrize(("promised", "starts"), [(4, False), (2, True)])
def test_non_preemptible_pods_avoid_models_with_quotas_of_others(promised: int, *, starts: bool) -> None:
    """If the quotas of others cover only two of four V100s, non-preemptible pods may use the other two."""
    projects = [with_models("a", 4, v100=(promised, None)), with_models("b", 4)]
    made = cluster(nodes(V100, A100), projects)
    made.submit(workload("notebook", "b", 2000, interactive=True, constraints=ON_V100))
    last = made.settle()
    assert ("notebook" not in last.pending) is starts
    if not starts:
        assert last.pending["notebook"].code is Waiting.OVER_QUOTA


def test_a_gang_that_runs_anywhere_is_judged_by_the_models_that_it_would_get() -> None:
    """Team b's gang would take two V100s that are within a's quota, and whose younger job would be evicted first."""
    projects = [with_models("a", 4, v100=(4, None)), replace(with_models("b", 6), priority=1)]
    gang = workload("gang", "b", 1000, pods=4, gang=True, age=1)
    bound = workload("bound", "a", 4000, constraints=ON_V100, age=2)
    made = cluster(nodes(V100, A100), projects, running("busy", "b", "node-1", 2), gang, bound)
    last = made.settle()
    assert made.evicted == []
    assert made.held() == {"a": 4000, "b": 2000}
    assert set(last.pending) == {"gang"}
    alone = cluster(nodes(V100, A100), projects, running("busy", "b", "node-1", 2), gang)
    alone.settle()
    assert alone.held() == {"a": 0, "b": 6000}, "nobody else asks for them: they are lent"


@pytest.mark.parametrize(("v100", "lent"), [(2, set()), (1, {V100, A100}), (0, {A100})])
def test_a_gang_on_two_models_is_covered_when_the_quota_for_each_covers_its_part(
    v100: int, lent: set[str]
) -> None:
    gang = workload("gang", "b", 1000, pods=4, gang=True)
    pods = tuple(
        replace(pod, state=PodState.ALLOCATED, node=f"node-{at // 2}", devices=(at % 2,))
        for at, pod in enumerate(gang.pods)
    )
    promised = {V100: v100 * 1000, A100: 2000} if v100 else {A100: 1000}
    found = coverage(
        filling_order([replace(gang, pods=pods)]),
        (4000, UNLIMITED, UNLIMITED),
        model_quota=promised,
        model_of=lambda pod: V100 if pod.node == "node-0" else A100,
    )
    assert len(found.covered) == 1
    assert {each.model for each in found.other_model} == lent


def test_the_fair_share_counts_no_more_of_a_model_than_its_limit() -> None:
    """Team a can use only two V100s, so its further demand goes to b."""
    projects = [replace(with_models("a", 0, v100=(None, 2)), over_quota_weight=1), project("b", 0)]
    projects[1] = replace(projects[1], over_quota_weight=1)
    made = cluster(nodes(V100), projects)
    made.submit(workload("many", "a", 1000, pods=4))
    made.submit(workload("others", "b", 1000, pods=4))
    assert made.step().shares_gpu_milli == {"a": 2000, "b": 2000}
    projects[0] = with_models("a", 0, v100=(None, 1))
    made = cluster(nodes(V100), [replace(projects[0], over_quota_weight=1), projects[1]])
    made.submit(workload("many", "a", 1000, pods=4))
    made.submit(workload("others", "b", 1000, pods=4))
    assert made.step().shares_gpu_milli == {"a": 1000, "b": 3000}


def test_a_department_has_of_a_model_the_sum_of_its_projects() -> None:
    tree = [
        project("physics", 4000),
        replace(with_models("a", 4, v100=(2, None)), parent="physics"),
        project("chemistry", 4000),
        replace(with_models("b", 4), parent="chemistry"),
    ]
    made = cluster(
        nodes(V100, A100),
        tree,
        running("lent", "b", "node-0", 4),
        workload("new", "a", 2000, constraints=ON_V100, age=9),
    )
    made.settle()
    assert made.held() == {"physics": 0, "a": 2000, "chemistry": 0, "b": 4000}


@pytest.mark.parametrize(
    ("projects", "words"),
    [
        ({"a": (None, 8000, {V100: 4000})}, None),
        ({"a": (None, 3000, {V100: 4000})}, "add up to 4 GPUs, its quota is 3"),
        ({"a": (None, None, {V100: 5000})}, "the cluster has 4 of"),
        ({"a": (None, None, {"H100": 1000})}, "the quotas for H100 add up to 1 GPUs"),
        (
            {"d": (None, 8000, {V100: 2000}), "a": ("d", 4000, {V100: 3000})},
            "d itself has 2",
        ),
        ({"d": (None, 8000, {}), "a": ("d", 4000, {V100: 3000})}, None),
    ],
)
def test_quotas_for_models_that_cannot_all_be_kept_are_named(
    projects: dict[str, tuple[str | None, int | None, dict[str, int]]], words: str | None
) -> None:
    found = gpu_model_excess(projects, {V100: 4000, A100: 4000})
    assert (found is None) if words is None else (found is not None and words in found)
