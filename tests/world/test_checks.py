"""The checks themselves: each detects a plan, or a planner, that violates its rule."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from orchestrator.labels import LabelRequirement
from orchestrator.planner import plan
from orchestrator.planner.model import (
    Binding,
    Budget,
    Eviction,
    FailureKind,
    GpuModelBounds,
    Plan,
    PodState,
    Rejection,
    Request,
    Snapshot,
    SubGroup,
    Workload,
)
from orchestrator.planner.settings import Settings
from orchestrator.planner.traits import HostPort, PodSelector, PodTerm, PodTraits, SpreadConstraint
from tests.planner.builders import node, project, workload
from tests.world.capacity import ClusterCapacity
from tests.world.failing import FailingCluster
from tests.world.packing import Item, fits
from tests.world.rest_checks import check_rest
from tests.world.scenes import saturated
from tests.world.settling import History, Pace, settle
from tests.world.shrink import shrunk
from tests.world.step_checks import check_step, difference, shuffled
from tests.world.water import Side, divide
from tests.world.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

NOBODY: Mapping[str, int] = {}


def on(work: Workload, name: str, *devices: tuple[int, ...], **changes: object) -> Workload:
    """Return the workload with its first pods running on these devices of the node."""
    pods = [
        replace(pod, state=PodState.ALLOCATED, node=name, devices=held)
        for pod, held in zip(work.pods, devices, strict=False)
    ]
    return replace(work, pods=(*pods, *work.pods[len(pods) :]), started_at_us=1, **changes)  # type: ignore[arg-type]


def terminating(work: Workload) -> Workload:
    return replace(work, pods=tuple(pod.in_state(PodState.RELEASING) for pod in work.pods))


def cluster(*work: Workload, gpus: int = 4, **changes: object) -> Snapshot:
    teams = (project("a", 2000), project("b", 2000, limit_gpu_milli=3000))
    base = Snapshot((node("n", gpus),), teams, work)
    return replace(base, **changes)  # type: ignore[arg-type]


def bind(pod: str, *devices: int) -> Binding:
    return Binding(pod, pod.rpartition("-")[0], "n", devices)


def evict(pod: str, winner: str, rule: str = "quota") -> Eviction:
    return Eviction(pod, pod.rpartition("-")[0], winner, rule, "because")


def decided(
    snapshot: Snapshot,
    *,
    bindings: tuple[Binding, ...] = (),
    evictions: tuple[Eviction, ...] = (),
    nominations: tuple[Binding, ...] = (),
) -> set[str]:
    """Return the failed checks for this plan, except those on shares and reasons, which the plan leaves empty."""
    wrong = check_step(snapshot, Plan(bindings, evictions, NOBODY, NOBODY, {}, nominations))
    return {violation.check for violation in wrong} - {"shares", "reasons"}


A1 = on(workload("a1", "a", 2000, age=1), "n", (0, 1))
A2 = on(workload("a2", "a", 2000, age=2), "n", (2, 3))
B1 = workload("b1", "b", 2000, age=3)


@pytest.mark.parametrize(
    ("devices", "check"),
    [((2, 3), None), ((1, 2), "capacity"), ((2,), "capacity"), ((2, 2), "capacity"), ((3, 4), "capacity")],
)
def test_a_device_is_given_once_and_as_many_as_are_asked_for(
    devices: tuple[int, ...], check: str | None
) -> None:
    assert decided(cluster(A1, B1), bindings=(bind("b1-0", *devices),)) == ({check} if check else set())


@pytest.mark.parametrize(
    "broken",
    [
        {"schedulable": False},
        {"cpu_milli": 1},
        {"pod_slots": 1},
        {"memory_bytes": 0},
        {"unhealthy_gpus": (3,)},
        {"taints": node("n").taints, "labels": {"x": "y"}, "lost_gpus": 1},
    ],
)
def test_nothing_is_started_where_a_node_cannot_hold_it(broken: dict[str, object]) -> None:
    request = Request(gpu_count=2, cpu_milli=10, memory_bytes=10)
    greedy = replace(B1, pods=(replace(B1.pods[0], request=request),))
    snapshot = cluster(A1, greedy, nodes=(node("n", 4, **broken),))
    assert decided(snapshot, bindings=(bind("b1-0", 2, 3),)) == {"capacity"}


@pytest.mark.parametrize(("has", "checks"), [(0, {"capacity"}), (1, {"capacity"}), (2, set())])
def test_no_node_gives_more_than_it_has_of_another_resource(has: int, checks: set[str]) -> None:
    greedy = replace(B1, pods=(replace(B1.pods[0], request=Request(gpu_count=2, scalars=(("x", 2),))),))
    snapshot = cluster(A1, greedy, nodes=(node("n", 4, scalars={"x": has}),))
    assert decided(snapshot, bindings=(bind("b1-0", 2, 3),)) == checks


def with_traits(work: Workload, **traits: object) -> Workload:
    """Return the workload with pods in its project's namespace, with its name as their label `app`."""
    own = PodTraits(f"muster-{work.project}", (("app", work.name),), **traits)  # type: ignore[arg-type]
    return replace(work, pods=tuple(replace(pod, traits=own) for pod in work.pods))


def term(app: str, key: str = "kubernetes.io/hostname") -> PodTerm:
    return PodTerm(PodSelector(None, (LabelRequirement("app", "In", (app,)),)), key)


SPREAD = SpreadConstraint("zone", 1, PodSelector(("muster-b",), (LabelRequirement("app", "In", ("b1",)),)))


@pytest.mark.parametrize(
    ("running", "new", "is_broken"),
    [
        ({}, {"anti_affinity": (term("a1"),)}, True),
        ({}, {"anti_affinity": (term("a1", "zone"),)}, True),
        ({}, {"anti_affinity": (term("other"),)}, False),
        ({"anti_affinity": (term("b1"),)}, {}, True),
        ({}, {"affinity": (term("a1"),)}, False),
        ({}, {"affinity": (term("b1"),)}, False),
        ({}, {"affinity": (term("other"),)}, True),
        ({}, {"affinity": (term("a1", "rack"),)}, True),
        ({"host_ports": (HostPort(80),)}, {"host_ports": (HostPort(80),)}, True),
        ({"host_ports": (HostPort(80),)}, {"host_ports": (HostPort(81),)}, False),
        (
            {"host_ports": (HostPort(80, address="10.0.0.1"),)},
            {"host_ports": (HostPort(80, address="10.0.0.2"),)},
            False,
        ),
        ({}, {"spread": (SPREAD,)}, False),
        ({}, {"spread": (replace(SPREAD, min_domains=3, max_skew=1),)}, False),
        ({}, {"spread": (replace(SPREAD, topology_key="rack"),)}, True),
    ],
)
def test_nothing_is_started_against_a_constraint_between_pods(
    running: dict[str, object], new: dict[str, object], is_broken: bool
) -> None:
    nodes = (node("n", 4, labels={"zone": "east"}), node("m", 4, labels={"zone": "west"}))
    snapshot = cluster(with_traits(A1, **running), with_traits(B1, **new), nodes=nodes)
    broken = {"constraint"} if is_broken else set()
    assert decided(snapshot, bindings=(bind("b1-0", 2, 3),)) == broken
    later = {"constraint-later"} if is_broken else set()
    assert decided(snapshot, nominations=(bind("b1-0", 2, 3),)) == later


def test_terminating_pods_keep_others_away_until_they_have_ended() -> None:
    apart = with_traits(B1, anti_affinity=(term("a1"),))
    leaving = with_traits(terminating(A1))
    assert decided(cluster(leaving, apart), bindings=(bind("b1-0", 2, 3),)) == {"constraint"}
    assert decided(cluster(leaving, apart), nominations=(bind("b1-0", 2, 3),)) == set()
    stuck = replace(leaving, pods=tuple(replace(pod, stuck=True) for pod in leaving.pods))
    assert decided(cluster(stuck, apart), nominations=(bind("b1-0", 2, 3),)) == {"constraint-later"}


def test_spread_counts_the_pods_that_start_together() -> None:
    nodes = (node("n", 4, labels={"zone": "east"}), node("m", 4, labels={"zone": "west"}))
    pair = with_traits(workload("b1", "b", 1000, pods=2, gang=True), spread=(SPREAD,))
    both = (bind("b1-0", 0), bind("b1-1", 1))
    assert decided(cluster(pair, nodes=nodes), bindings=both) == {"constraint"}
    apart = (both[0], replace(both[1], node="m"))
    assert decided(cluster(pair, nodes=nodes), bindings=apart) == set()


def test_limits_and_quotas_of_firm_work_hold() -> None:
    large = workload("b2", "b", 4000)
    assert decided(cluster(large), bindings=(bind("b2-0", 0, 1, 2, 3),)) == {"limits"}
    leaving = terminating(on(B1, "n", (0,)))
    three = workload("b3", "b", 3000)
    assert decided(cluster(leaving, three), bindings=(bind("b3-0", 1, 2, 3),)) == {"limits"}
    assert decided(cluster(leaving, three), nominations=(bind("b3-0", 1, 2, 3),)) == set()
    firm = workload("a3", "a", 3000, preemptible=False)
    assert decided(cluster(firm), bindings=(bind("a3-0", 0, 1, 2),)) == {"firm"}
    leaving, firm = terminating(A1), workload("a2", "a", 2000, preemptible=False)
    assert decided(cluster(leaving, firm), bindings=(bind("a2-0", 2, 3),)) == set()
    leaving = replace(leaving, preemptible=False)
    assert decided(cluster(leaving, firm), bindings=(bind("a2-0", 2, 3),)) == {"firm"}
    assert decided(cluster(leaving, firm), nominations=(bind("a2-0", 2, 3),)) == set()
    assert "firm" in decided(cluster(replace(A1, preemptible=False), B1), evictions=(evict("a1-0", "b1"),))


def test_a_pod_within_quota_is_evicted_only_with_a_nomination() -> None:
    snapshot = cluster(A1, A2, B1)
    assert decided(snapshot, evictions=(evict("a2-0", "b1"),)) == set()
    assert decided(snapshot, evictions=(evict("a1-0", "b1"),)) == {"covered"}
    assert "covered" in decided(snapshot, evictions=(evict("a1-0", "b1"), evict("a2-0", "b1")))
    large = replace(A1.pods[0], request=Request(gpu_count=3), devices=(0, 1, 2))
    too_large = replace(
        A1, pods=(large,)
    )  # the small job behind it can count as within the quota, or as the first victim
    assert decided(cluster(too_large, A2, B1, gpus=6), evictions=(evict("a2-0", "b1"),)) == set()
    losses = (evict("a1-0", "b1"), evict("a2-0", "a0", "priority"))
    small = on(workload("a2", "a", 1000, age=2), "n", (2,))
    for second in (A2, small):
        # the state before the decision counts, even if a more entitled sibling takes quota in the decision
        for first in (workload("a0", "a", 1000, priority=90), workload("a0", "a", 2000, preemptible=False)):
            starts = (bind("a0-0", *range(2, 2 + first.pods[0].request.gpu_count)),)
            assert decided(cluster(A1, second, B1, first), evictions=losses, nominations=starts) == {
                "covered"
            }
    wide = cluster(A1, A2, B1, gpus=6)
    moved = decided(
        wide, evictions=(evict("a1-0", "b1", "consolidation"),), nominations=(bind("a1-0", 4, 5),)
    )
    assert moved == set()


def test_in_a_project_only_the_first_in_the_queue_takes() -> None:
    late = workload("a3", "a", 2000, age=9)
    assert decided(cluster(A1, late), evictions=(evict("a1-0", "a3", "priority"),)) == {"evictions"}
    urgent = replace(late, priority=90)
    assert decided(cluster(A1, urgent), evictions=(evict("a1-0", "a3", "priority"),)) == set()


def test_caps_budgets_and_minimum_runtimes_hold() -> None:
    losses = (evict("a2-0", "b1"),)
    capped = cluster(A1, A2, B1, settings=Settings(max_evictions=0))
    assert decided(capped, evictions=losses) == {"cap"}
    unmoved = cluster(A1, A2, B1, gpus=6, settings=Settings(max_consolidation_victims=0))
    moves = (evict("a2-0", "b1", "consolidation"),)
    assert decided(unmoved, evictions=moves, nominations=(bind("a2-0", 4, 5),)) == {"cap"}
    two = on(workload("a2", "a", 1000, pods=2), "n", (2,), (3,))
    once = cluster(A1, two, B1, gpus=6, settings=Settings(max_consolidation_victims=1))
    both = (evict("a2-0", "b1", "consolidation"), evict("a2-1", "b1", "consolidation"))
    assert decided(once, evictions=both, nominations=(bind("a2-0", 4), bind("a2-1", 5))) == {"cap"}
    # a reclaimed pod does not count as migrated, even if it fits elsewhere
    assert decided(unmoved, evictions=losses, nominations=(bind("a2-0", 4, 5),)) == set()
    protected = cluster(A1, A2, B1, budgets=(Budget("pdb", 0, ("a2-0",)),))
    assert decided(protected, evictions=losses) == {"budget"}
    teams = (project("a", 2000, reclaim_min_runtime_seconds=60), project("b", 2000))
    assert decided(cluster(A1, A2, B1, projects=teams, now_us=2), evictions=losses) == {"minimum-runtime"}


@pytest.mark.parametrize("quota_cpu_milli", [None, 4000])
def test_the_older_of_two_jobs_is_within_the_quota_also_where_the_younger_would_keep_its_gpus(
    quota_cpu_milli: int | None,
) -> None:
    """Each of the two jobs alone uses all GPUs of the quota. The older job is within the quotas of GPUs and of CPUs."""
    teams = (project("a", 1000, quota_cpu_milli=quota_cpu_milli), project("b", 2000))
    jobs = [on(workload(f"a{age}", "a", 1000, age=age), "n", (age,)) for age in (1, 2)]
    cpus = [
        replace(job.pods[0], request=Request(gpu_count=1, cpu_milli=cpu))
        for job, cpu in zip(jobs, (4000, 100), strict=True)
    ]
    work = [replace(job, pods=(pod,)) for job, pod in zip(jobs, cpus, strict=True)]
    snapshot = cluster(*work, workload("b1", "b", 1000, age=3), gpus=3, projects=teams)
    assert decided(snapshot, evictions=(evict("a1-0", "b1"),)) == {"covered"}
    assert decided(snapshot, evictions=(evict("a2-0", "b1"),)) == set()


def test_a_gang_starts_whole_or_is_completed() -> None:
    gang = workload("g", "a", 1000, pods=2, gang=True)
    assert decided(cluster(gang), bindings=(bind("g-0", 0),)) == {"gang"}
    assert decided(cluster(gang), bindings=(bind("g-0", 0), bind("g-1", 1))) == set()
    assert decided(cluster(gang), bindings=(bind("g-0", 0),), nominations=(bind("g-1", 1),)) == {"gang"}
    assert decided(cluster(on(gang, "n", (0,))), bindings=(bind("g-1", 1),)) == set()


def test_a_nomination_is_a_placement_of_its_own() -> None:
    assert decided(cluster(A1, B1), nominations=(bind("b1-0", 1, 2),)) == {"nomination"}
    assert decided(cluster(A1, B1), nominations=(bind("a1-0", 2, 3),)) == {"nomination"}
    promised = replace(B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),))
    other = workload("a9", "a", 2000, age=9)
    assert decided(cluster(A1, promised, other), bindings=(bind("a9-0", 2, 3),)) == {"nomination-lost"}
    assert decided(cluster(promised, other), bindings=(bind("a9-0", 0, 1), bind("b1-0", 2, 3))) == set()
    grows = replace(workload("b1", "b", 1000, pods=2, age=3), min_member=1)
    pods = [
        replace(pod, nominated_node="n", nominated_devices=(2 + at,)) for at, pod in enumerate(grows.pods)
    ]
    small, within_quota = replace(grows, pods=tuple(pods)), (project("a", 4000), project("b", 1000))
    snapshot = cluster(A1, small, workload("a9", "a", 1000, age=9), projects=within_quota)
    assert decided(snapshot, nominations=(bind("a9-0", 3), bind("b1-0", 2))) == set(), "one of two is kept"
    older = workload("b0", "b", 2000, age=1)
    assert decided(cluster(A1, promised, older), bindings=(bind("b0-0", 2, 3),)) == set()


@pytest.mark.parametrize("is_in_department", [False, True])
@pytest.mark.parametrize(("quota_milli", "checks"), [(None, {"nomination-lost"}), (1000, set())])
def test_a_nominee_with_a_quota_for_the_model_takes_the_nomination_of_one_without(
    quota_milli: int | None, checks: set[str], *, is_in_department: bool
) -> None:
    bounds = GpuModelBounds("A100", quota_gpu_milli=quota_milli)
    teams = [project("a", 1000, gpu_models=(bounds,)), project("b", 2000)]
    if is_in_department:  # the department holds the same as its projects
        teams = [replace(teams[0], parent="d"), teams[1], project("d", 1000)]
    promised = replace(B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),))
    snapshot = cluster(promised, workload("a9", "a", 1000, age=9), projects=tuple(teams))
    nodes = (replace(node("n", 4), labels={"nvidia.com/gpu.product": "A100"}),)
    assert decided(replace(snapshot, nodes=nodes), bindings=(bind("a9-0", 3),)) == checks


@pytest.mark.parametrize(("lost_gpus", "checks"), [(0, {"nomination-lost"}), (1, set())])
def test_a_nomination_without_a_node_after_a_lost_gpu_is_lost_to_no_workload(
    lost_gpus: int, checks: set[str]
) -> None:
    promised = replace(B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),))
    snapshot = cluster(A1, promised, workload("a9", "a", 1000, age=9))
    nodes = tuple(replace(node, lost_gpus=lost_gpus) for node in snapshot.nodes)
    assert decided(replace(snapshot, nodes=nodes), bindings=(bind("a9-0", 3),)) == checks


@pytest.mark.parametrize(("lost_gpus", "checks"), [(0, {"nomination-lost"}), (1, set())])
def test_a_nomination_that_a_lost_gpu_leaves_to_another_pod_of_its_job_is_lost_to_no_workload(
    lost_gpus: int, checks: set[str]
) -> None:
    grows = replace(workload("b1", "b", 1000, pods=2, age=3), min_member=1)
    pods = [
        replace(pod, nominated_node="n", nominated_devices=(2 + at,)) for at, pod in enumerate(grows.pods)
    ]
    snapshot = cluster(A1, replace(grows, pods=tuple(pods)))
    nodes = tuple(replace(node, lost_gpus=lost_gpus) for node in snapshot.nodes)
    assert decided(replace(snapshot, nodes=nodes), bindings=(bind("b1-0", 2),)) == checks


@pytest.mark.parametrize(("other_milli", "checks"), [(2000, set()), (1000, {"nomination-lost"})])
def test_of_several_lost_nominations_the_largest_can_be_the_last(other_milli: int, checks: set[str]) -> None:
    """The losing side exceeds its quota by one GPU until the larger of its two workloads is evicted."""
    teams = (project("a", 4000), project("b", 1000))
    size = other_milli // 1000
    other = workload("b2", "b", other_milli, age=4)
    other = replace(
        other,
        pods=(replace(other.pods[0], nominated_node="n", nominated_devices=tuple(range(1, 1 + size))),),
    )
    small = workload("b1", "b", 1000, age=3)
    small = replace(small, pods=(replace(small.pods[0], nominated_node="n", nominated_devices=(0,)),))
    taker = workload("a9", "a", 1000 + other_milli, age=9)
    taken = bind("a9-0", *range(1 + size))
    assert decided(cluster(small, other, taker, projects=teams, gpus=1 + size), bindings=(taken,)) == checks


def test_a_nomination_is_lost_only_by_the_resources_that_a_more_entitled_workload_takes_cpus_included() -> (
    None
):
    """The taker needs no GPU, and a younger workload gets its devices. With GPUs alone, all would fit."""
    teams = (project("a", 0), project("b", 0), project("c", 4000))
    (pod,) = B1.pods
    request = replace(pod.request, cpu_milli=70_000)
    promised = replace(
        B1, pods=(replace(pod, request=request, nominated_node="n", nominated_devices=(2, 3)),)
    )
    younger = workload("a9", "a", 2000, age=9)
    cpus = workload("c9", "c", 0, age=9)
    cpus = replace(cpus, pods=(replace(cpus.pods[0], request=Request(cpu_milli=70_000)),))
    snapshot = cluster(promised, younger, cpus, projects=teams)
    assert decided(snapshot, bindings=(bind("a9-0", 2, 3), Binding("c9-0", "c9", "n", ()))) == set()
    few = replace(cpus, pods=(replace(cpus.pods[0], request=Request(cpu_milli=4_000)),))
    snapshot = cluster(promised, younger, few, projects=teams)
    both = (bind("a9-0", 2, 3), Binding("c9-0", "c9", "n", ()))
    assert decided(snapshot, bindings=both) == {"nomination-lost"}
    assert decided(snapshot, bindings=both[1:]) == {"nomination-lost"}, "it is lost to nobody"


@pytest.mark.parametrize(("left_milli", "checks"), [(3000, set()), (5000, {"nomination-lost"})])
def test_a_workload_within_its_fair_share_takes_the_nomination_of_a_side_above_its_own(
    left_milli: int, checks: set[str]
) -> None:
    """The taker's department is also above its share, but afterwards not better served than the other."""
    teams = (
        project("left", 1000),
        project("right", 1000),
        project("a", 1000, parent="left"),
        project("b", 0, parent="right"),
        project("other", 0, parent="left"),
    )
    runs = on(workload("b8", "b", 2000), "n", (0, 1))
    promised = replace(B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),))
    rest = on(workload("o1", "other", left_milli - 2000), "n", (4, 5, 6)[: left_milli // 1000 - 2])
    snapshot = cluster(runs, promised, rest, workload("a9", "a", 2000, age=9), gpus=7, projects=teams)
    shares = {"left": 2000, "a": 2000, "other": 0, "right": 1000, "b": 1000}
    wrong = check_step(snapshot, Plan((bind("a9-0", 2, 3),), (), shares, NOBODY, {}, ()))
    assert {violation.check for violation in wrong} - {"shares", "reasons"} == checks


def test_a_nomination_ends_with_the_gang_whose_running_pods_are_evicted() -> None:
    gang = on(workload("g", "b", 1000, pods=3, age=3, gang=True), "n", (0,), (1,))
    promised = replace(gang.pods[2], nominated_node="n", nominated_devices=(2,))
    gang = replace(gang, pods=(*gang.pods[:2], promised))
    teams = (project("a", 2000), project("b", 3000), project("c", 0))
    snapshot = cluster(gang, workload("a9", "a", 2000, age=9), workload("c9", "c", 1000), projects=teams)
    lost = (evict("g-0", "a9"), evict("g-1", "a9"))
    promises = (bind("a9-0", 0, 1), bind("c9-0", 2))
    assert "nomination-lost" not in decided(snapshot, evictions=lost, nominations=promises)
    assert "nomination-lost" in decided(snapshot, nominations=(bind("c9-0", 2),))


def test_a_nomination_of_a_non_preemptible_workload_ends_with_its_quota() -> None:
    promised = replace(
        B1, preemptible=False, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),)
    )
    other = workload("a9", "a", 2000, age=9)
    for quota_milli, checks in ((2000, {"nomination-lost"}), (1000, set())):
        teams = (project("a", 2000), project("b", quota_milli))
        snapshot = cluster(A1, promised, other, projects=teams)
        assert decided(snapshot, bindings=(bind("a9-0", 2, 3),)) == checks


@pytest.mark.parametrize(("quota_milli", "checks"), [(3000, set()), (1000, {"nomination-lost"})])
def test_a_workload_within_the_quota_of_its_department_takes_the_nomination_of_a_borrower(
    quota_milli: int, checks: set[str]
) -> None:
    """Both workloads exceed the quotas of their projects, and are within their fair shares."""
    teams = (
        project("left", quota_milli),
        project("right", 0),
        project("a", 1000, parent="left"),
        project("b", 0, parent="right"),
    )
    promised = replace(B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),))
    snapshot = cluster(promised, workload("a9", "a", 2000, age=9), projects=teams)
    shares = {"left": 2000, "a": 2000, "right": 2000, "b": 2000}
    wrong = check_step(snapshot, Plan((bind("a9-0", 2, 3),), (), shares, NOBODY, {}, ()))
    assert {violation.check for violation in wrong} - {"shares", "reasons"} == checks


@pytest.mark.parametrize(("minimum", "checks"), [(1, set()), (2, {"nomination-lost"})])
def test_the_first_pod_of_an_elastic_workload_has_an_entitlement_of_its_own(
    minimum: int, checks: set[str]
) -> None:
    """One of its pods is within the quota and more entitled; the loser cannot use the rest of the placement."""
    promised = replace(
        B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),), project="a", id="b1"
    )
    teams = (project("a", 0), project("b", 1000))
    grows = replace(workload("b9", "b", 1000, pods=2), min_member=minimum)
    snapshot = cluster(promised, grows, projects=teams)
    assert decided(snapshot, bindings=(bind("b9-0", 2), bind("b9-1", 3))) == checks


@pytest.mark.parametrize(("waits_seconds", "checks"), [(60, set()), (59, {"nomination-lost"})])
def test_backfilled_gpus_are_returned_to_their_reservation(waits_seconds: int, checks: set[str]) -> None:
    promised = replace(B1, pods=(replace(B1.pods[0], nominated_node="n", nominated_devices=(2, 3)),))
    teams = (project("a", 0), project("b", 0))
    waits = workload("a9", "a", 2000, age=1)
    snapshot = cluster(
        promised,
        waits,
        projects=teams,
        now_us=waits.created_at_us + waits_seconds * 1_000_000,
        settings=Settings(reservation_after_seconds=60),
    )
    assert decided(snapshot, bindings=(bind("a9-0", 2, 3),)) == checks


def test_migrated_pods_count_for_the_minimum_runtime_of_their_workload() -> None:
    teams = (project("a", 0, reclaim_min_runtime_seconds=60), project("b", 4000))
    elastic = on(workload("a8", "a", 1000, pods=2), "n", (0,), (1,))
    snapshot = cluster(elastic, B1, gpus=2, nodes=(node("n", 2), node("m", 1)), projects=teams, now_us=2)
    losses = (evict("a8-0", "b1", "consolidation"), evict("a8-1", "b1"))
    assert decided(snapshot, evictions=losses) == {"minimum-runtime", "moved"}
    moved = Binding("a8-0", "a8", "m", (0,))
    assert decided(snapshot, evictions=losses, nominations=(moved,)) == set()


@pytest.mark.parametrize(("pods", "checks"), [(2, set()), (1, {"nomination-lost"})])
def test_the_claim_of_a_gang_with_sub_groups_is_that_of_all_its_pods(pods: int, checks: set[str]) -> None:
    """Both pods together exceed the quota, and a workload within its quota is more entitled. One pod alone does not
    exceed it.
    """
    names = ("leader", "worker")[:pods]
    groups = SubGroup("", children=tuple(SubGroup(name, 1) for name in names))
    gang = workload("g", "b", 2000, pods=pods, age=3)
    promised = tuple(
        replace(pod, sub_group=name, nominated_node="n", nominated_devices=(2 * index, 2 * index + 1))
        for index, (pod, name) in enumerate(zip(gang.pods, names, strict=True))
    )
    teams = (project("a", 2000), project("b", 2000))
    snapshot = cluster(replace(gang, pods=promised, groups=groups), workload("a9", "a", 2000), projects=teams)
    assert decided(snapshot, bindings=(bind("a9-0", 0, 1),)) == checks


def test_idle_or_borrowed_gpus_are_noticed_at_rest() -> None:
    assert [wrong.check for wrong in check_rest(cluster(A1, B1))] == ["idle"]
    assert [wrong.check for wrong in check_rest(cluster(A1, A2, B1))] == ["starved"]
    assert check_rest(cluster(A1, A2, B1, budgets=(Budget("pdb", 0, ("a2-0",)),))) == []
    scattered = on(workload("a3", "a", 1000, pods=2), "n", (0,), (3,))
    two = (node("n", 2), node("m", 2))
    moved = replace(scattered, pods=(*scattered.pods[:1], replace(scattered.pods[1], node="m", devices=(0,))))
    assert [wrong.check for wrong in check_rest(cluster(moved, B1, nodes=two))] == ["starved-moves"]


def test_a_planner_that_never_rests_or_forgets_is_noticed() -> None:
    def restless(snapshot: Snapshot) -> Plan:
        pods = [pod for one in snapshot.workloads for pod in one.pods if one.id == "a2"]
        running = [pod for pod in pods if pod.state is PodState.ALLOCATED]
        bindings = () if running else (Binding(pods[0].id, "a2", "n", (2, 3)),)
        evictions = tuple(Eviction(pod.id, "a2", "b1", "quota", "") for pod in running)
        return Plan(bindings, evictions, NOBODY, NOBODY, {})

    checks = settle(cluster(A1, A2, B1), Pace(), decider=restless).violations
    assert {"loop", "evicted-twice"} <= checks.keys()


@pytest.mark.parametrize(("is_bound", "count"), [(True, 0), (False, 1)])
def test_a_pod_may_make_way_again_for_the_next_pod_of_a_workload_that_has_grown(
    is_bound: bool, count: int
) -> None:
    """The beneficiary of the first eviction is bound, or not, in the decision that evicts for its next pod."""
    grows = workload("b1", "b", 1000, pods=2, age=3)
    first = replace(grows.pods[0], nominated_node="n", nominated_devices=(2,))
    promised = replace(grows, pods=(first, grows.pods[1]))
    losses = (evict("a2-0", "b1"), evict("a1-0", "b1"))
    history = History()
    assert list(history.note(cluster(A1, A2, grows), Plan((), losses[1:], NOBODY, NOBODY, {}))) == []
    bound = (bind("b1-0", 2),) if is_bound else ()
    wrong = history.note(cluster(A1, A2, promised), Plan(bound, losses, NOBODY, NOBODY, {}))
    assert [each.check for each in wrong] == ["evicted-twice"] * count

    def failing(_: Snapshot) -> Plan:
        raise IndexError("pop from empty list")

    assert settle(cluster(A1), Pace(), decider=failing).violations.keys() == {"crash"}


def test_plans_that_differ_in_anything_differ() -> None:
    first = plan(cluster(B1, workload("a8", "a", 1000)))
    assert difference(first, first) is None
    other = replace(first, bindings=first.bindings[::-1])
    assert difference(first, other) == "bindings (only their order)"
    assert difference(first, replace(first, left_over=("x",))) == "left_over"


def side(name: str, wanted: int, *, quota: int = 0, weight: int = 1, priority: int = 0) -> Side:
    return Side(name, quota * 1000, wanted * 1000, weight, priority, ord(name))


@pytest.mark.parametrize(
    ("amount", "sides", "expected"),
    [
        (3, [side("a", 9, priority=1), side("b", 9, priority=1), side("c", 9)], (2, 1, 0)),
        (19, [side("a", 3, weight=3), side("b", 99, weight=3), side("c", 99)], (3, 12, 4)),
        (8, [side("a", 9, quota=4, weight=0), side("b", 9, quota=2)], (4, 4)),
        (5, [side("a", 9), side("b", 9)], (3, 2)),
        (4, [side("a", 1, quota=4), side("b", 9)], (1, 3)),
    ],
)
def test_shares_are_divided_exactly(amount: int, sides: list[Side], expected: tuple[int, ...]) -> None:
    assert tuple(divide(amount * 1000, sides).values()) == tuple(1000 * gpus for gpus in expected)
    assert isinstance(next(iter(divide(amount * 1000, sides).values())), int)
    assert Fraction(sum(divide(amount * 1000, sides).values())) <= amount * 1000


ANY = frozenset({"n", "m"})


@pytest.mark.parametrize(
    ("requests", "fit"),
    [
        ([Request(gpu_count=4), Request(gpu_count=2)], True),
        ([Request(gpu_count=3), Request(gpu_count=3)], False),
        ([Request(gpu_portion_milli=500)] * 12, True),
        ([Request(gpu_portion_milli=600)] * 7, False),
        ([Request(gpu_portion_milli=400), Request(gpu_portion_milli=600)] * 6, True),
        ([Request(gpu_portion_milli=500, shared_devices=2)] * 6, True),
        ([Request(gpu_portion_milli=500, shared_devices=3)] * 4, False),
        ([Request(gpu_count=1, cpu_milli=41_000)] * 3, False),
        ([Request(gpu_count=2, scalars=(("x", 1),)), Request(gpu_count=4)], True),
        ([Request(gpu_count=1, scalars=(("x", 1),)), Request(gpu_count=1, scalars=(("x", 1),))], False),
    ],
)
def test_packing_tries_every_way(requests: list[Request], fit: bool) -> None:
    capacities = ClusterCapacity([node("n", 4), node("m", 2, scalars={"x": 1})])
    assert fits([Item(request, ANY) for request in requests], list(capacities.by_name.values())) is fit


def test_a_failing_world_shrinks_to_its_failing_part() -> None:
    snapshot = saturated(3, trees=True)
    culprit = snapshot.workloads[1]

    def fails(candidate: Snapshot) -> bool:
        return any(one.id == culprit.id for one in candidate.workloads) and bool(candidate.nodes)

    small = shrunk(snapshot, fails)
    assert [one.id for one in small.workloads] == [culprit.id]
    assert len(small.nodes) == 1
    assert len(small.projects) == 2


def test_worlds_are_made_again_by_their_seed() -> None:
    assert saturated(5, trees=False) == saturated(5, trees=False)
    lives = [World(5), World(5)]
    for life in lives:
        for _ in range(5):
            life.step()
    assert lives[0].snapshot == lives[1].snapshot
    assert shuffled(lives[0].snapshot, 1) == shuffled(lives[1].snapshot, 1)


def test_gpus_that_a_constraint_closes_are_not_idle() -> None:
    nodes = (node("n", 4, labels={"zone": "x"}), node("m", 2, labels={"zone": "x"}))
    for key, checks in (("kubernetes.io/hostname", ["idle"]), ("zone", [])):
        apart = with_traits(B1, anti_affinity=(term("a1", key),))
        assert [wrong.check for wrong in check_rest(cluster(with_traits(A1), apart, nodes=nodes))] == checks
    pair = workload("b1", "b", 1000, pods=2, gang=True)
    for count, checks in ((2, ["idle-gang"]), (1, [])):
        alone = with_traits(pair, anti_affinity=(term("b1"),))
        assert [wrong.check for wrong in check_rest(cluster(alone, nodes=nodes[:count]))] == checks


def test_a_victim_with_a_conflict_is_borrowed_too() -> None:
    apart = with_traits(B1, anti_affinity=(term("a2"), term("other")))
    assert [wrong.check for wrong in check_rest(cluster(A1, with_traits(A2), apart))] == ["starved"]
    apart = with_traits(B1, anti_affinity=(term("a1"),))
    assert check_rest(cluster(with_traits(A1), A2, apart)) == []


@pytest.mark.parametrize(
    ("rejections", "checks"),
    [
        ([Rejection("n", "other", "p", "", FailureKind.REFUSED)] * 9, ["idle"]),
        ([Rejection("n", "other", "p")], ["idle"]),
        ([Rejection("n", "other", "p")] * 2, []),
        ([Rejection("n", "other", "p", node_recovered=True)] * 2, ["idle"]),
        ([Rejection("n", "b1", "p", workload_recovered=True, node_recovered=True)] * 2, []),
        ([Rejection("n", "b1", "p", "", FailureKind.REFUSED)], []),
    ],
)
def test_only_a_failure_of_its_own_or_of_the_node_excuses_idle_gpus(
    rejections: list[Rejection], checks: list[str]
) -> None:
    snapshot = cluster(A1, B1, rejections=tuple(rejections))
    assert [wrong.check for wrong in check_rest(snapshot)] == checks


def test_starts_fail_by_the_names_of_workloads_and_nodes() -> None:
    """Each workload behaves once as its name requests."""
    nodes = (node("n", 8), node("rejects-m", 8))
    work = [
        workload(f"w-{kind}", "a", 1000, pods=2, gang=True, age=age)
        for age, kind in enumerate(("refused", "partly", "silent", "hopeless", "endless"))
    ]
    snapshot = cluster(*work, nodes=nodes, now_us=1_000_000_000)
    failing = Pace(is_failing=True).cluster(snapshot)
    where = {pod.id: "n" for one in work for pod in one.pods} | {"w-endless-1": "rejects-m"}
    bindings = tuple(
        Binding(name, name.rpartition("-")[0], where[name], (number % 8,))
        for number, name in enumerate(where)
    )
    failing.carry_out(Plan(bindings, (), NOBODY, NOBODY, {}))
    failures = [(each.pod, each.kind.value) for each in failing.snapshot.rejections]
    assert failures == [
        ("w-refused-0", "refused"),
        ("w-refused-1", "refused"),
        ("w-partly-1", "refused"),
        ("w-endless-1", "rejected"),
    ]
    pods = {pod.id: pod for one in failing.snapshot.workloads for pod in one.pods}
    assert [name for name, pod in pods.items() if pod.never_started] == [
        "w-silent-0",
        "w-silent-1",
        "w-hopeless-0",
        "w-hopeless-1",
    ]
    assert [name for name, pod in pods.items() if pod.cannot_start] == ["w-hopeless-0", "w-hopeless-1"]
    assert {name for name, pod in pods.items() if pod.state is PodState.PENDING} == {
        "w-refused-0",
        "w-refused-1",
        "w-partly-1",
        "w-endless-1+1",
    }


def test_a_pod_that_does_not_end_is_stuck_after_its_grace_period() -> None:
    endless = on(workload("w-endless", "a", 1000), "n", (0,))
    failing = Pace(1, is_failing=True).cluster(cluster(endless))
    nothing = Plan((), (), NOBODY, NOBODY, {})
    seen = []
    for decision in (replace(nothing, evictions=(evict("w-endless-0", "b1"),)), nothing, nothing):
        failing.carry_out(decision)
        seen.append(
            [pod.stuck for pod in failing.snapshot.workloads[0].pods if pod.state is PodState.RELEASING]
        )
    assert seen == [[False], [True], [True]]
    assert failing.is_quiet


def test_pods_on_a_dead_node_end_when_it_is_back() -> None:
    dead = node("n", 4, schedulable=False, unhealthy="not ready")
    failing = Pace(is_failing=True).cluster(cluster(A1, nodes=(dead,)))
    assert isinstance(failing, FailingCluster)
    failing.carry_out(Plan((), (evict("a1-0", "b1"),), NOBODY, NOBODY, {}))
    (old, *_) = failing.snapshot.workloads[0].pods
    assert (old.id, old.stuck) == ("a1-0", True)
    failing.snapshot = replace(failing.snapshot, nodes=(node("n", 4),))
    failing.refresh()
    assert [pod.id for pod in failing.snapshot.workloads[0].pods] == ["a1-0+1"]
