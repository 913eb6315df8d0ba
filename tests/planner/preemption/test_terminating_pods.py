"""Limits, and quotas of non-preemptible workloads, count terminating pods: a workload that would exceed them is
pending.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import GPU_MODEL_LABEL, GpuModelBounds, Plan, Project, Snapshot, Workload
from tests.planner.builders import node, project, workload
from tests.planner.preemption.test_nominations import leaving, nominated, places
from tests.planner.test_better import running

LIMITED = project("a", 2000, limit_gpu_milli=4000)
TEAM = project("a", 4000)
OLD = running(workload("old", "a", 4000, priority=0), "n1")
BOTH = pytest.mark.parametrize("preemptible", [True, False], ids=["limit", "quota"])
N2 = ("n2", (0, 1, 2, 3))


def decide(*work: Workload, projects: Iterable[Project] = (LIMITED,)) -> Plan:
    nodes = tuple(node(name, 4, labels={GPU_MODEL_LABEL: "A100"}) for name in ("n1", "n2"))
    return plan(Snapshot(nodes, tuple(projects), work))


def bounded(*work: Workload, preemptible: bool) -> Plan:
    """Decide with preemptible workloads and a limit of four GPUs, or with non-preemptible ones and a quota of four."""
    changed = [replace(each, preemptible=preemptible) for each in work]
    return decide(*changed, projects=(LIMITED if preemptible else TEAM,))


def test_a_preemptor_at_the_limit_waits_for_its_victim_to_end() -> None:
    """The other node is free, but with the terminating victim the project would hold eight GPUs."""
    new = workload("new", "a", 4000, age=1)
    decision = decide(OLD, new)
    assert [eviction.pod for eviction in decision.evictions] == ["old-0"]
    assert decision.bindings == ()
    assert places(decision.nominations) == {"new-0": N2}


@BOTH
def test_a_workload_is_nominated_until_the_terminating_pods_have_ended(preemptible: bool) -> None:
    bound = "limit" if preemptible else "quota"
    new = workload("new", "a", 4000, age=1)
    for waiting in (new, nominated(new, *N2[:1], *N2[1])):
        decision = bounded(leaving(OLD), waiting, preemptible=preemptible)
        assert (decision.bindings, decision.evictions) == ((), ())
        assert places(decision.nominations) == {"new-0": N2}
        assert decision.pending["new"].message == (
            f"is nominated to node n2 with 4 GPUs; {bound} of a: 4 GPUs are still held by terminating pods"
        )
    waits = nominated(new, "n2", 0, 1, 2, 3)
    assert places(bounded(waits, preemptible=preemptible).bindings) == {"new-0": N2}


@pytest.mark.parametrize(
    ("projects", "preemptible", "charged"),
    [
        (
            (project("top", 2000, limit_gpu_milli=4000), project("a", 2000, parent="top")),
            True,
            "limit of top: 4 GPUs",
        ),
        (
            (project("a", 2000, gpu_models=(GpuModelBounds("A100", 2000, 4000),)),),
            True,
            "limit of a: 4 GPUs of A100",
        ),
        ((project("a", 2000, limit_cpu_milli=4000),), True, "limit of a: 4 CPUs"),
        ((project("top", 4000), project("a", 8000, parent="top")), False, "quota of top: 4 GPUs"),
        ((project("a", 8000, quota_cpu_milli=4000),), False, "quota of a: 4 CPUs"),
        ((project("a", 8000, quota_memory_bytes=4 << 30),), False, "quota of a: 4 GiB"),
    ],
    ids=["department", "model", "CPU", "quota of a department", "quota for CPU", "quota for memory"],
)
def test_bounds_of_every_kind_charge_terminating_pods(
    projects: tuple[Project, ...], preemptible: bool, charged: str
) -> None:
    def with_more(work: Workload) -> Workload:
        (pod,) = work.pods
        request = replace(pod.request, cpu_milli=4000, memory_bytes=4 << 30)
        return replace(work, preemptible=preemptible, pods=(replace(pod, request=request),))

    decision = decide(leaving(with_more(OLD)), with_more(workload("new", "a", 4000)), projects=projects)
    assert decision.bindings == ()
    assert places(decision.nominations) == {"new-0": N2}
    assert f"; {charged} are still held by" in decision.pending["new"].message


@BOTH
def test_a_nominee_does_not_start_elsewhere_while_terminating_pods_are_charged(preemptible: bool) -> None:
    new = nominated(workload("new", "a", 4000), "n1", 0, 1, 2, 3)
    decision = bounded(leaving(OLD), new, preemptible=preemptible)
    assert decision.bindings == ()
    assert places(decision.nominations) == {"new-0": ("n1", (0, 1, 2, 3))}


@BOTH
def test_nominated_pods_hold_nothing_yet(preemptible: bool) -> None:
    """Of the four GPUs in the bound, one is used and the pods of two terminate. Two more are nominated, so the
    fourth is free.
    """
    used = running(workload("used", "a", 1000), "n1")
    old = leaving(running(workload("old", "a", 2000), "n1", 1))
    new = nominated(workload("new", "a", 2000), "n1", 1, 2)
    decision = bounded(used, old, new, workload("small", "a", 1000, age=1), preemptible=preemptible)
    assert [binding.pod for binding in decision.bindings] == ["small-0"]
    assert places(decision.nominations) == {"new-0": ("n1", (1, 2))}


@BOTH
def test_stuck_pods_are_not_charged(preemptible: bool) -> None:
    (pod,) = leaving(OLD).pods
    stuck = replace(OLD, pods=(replace(pod, stuck=True),))
    decision = bounded(stuck, workload("new", "a", 4000), preemptible=preemptible)
    assert places(decision.bindings) == {"new-0": N2}


def test_without_a_bound_no_workload_waits_for_terminating_pods() -> None:
    decision = decide(leaving(OLD), workload("new", "a", 4000), projects=(project("a", 2000),))
    assert places(decision.bindings) == {"new-0": N2}


@pytest.mark.parametrize(("old", "new"), [(True, False), (False, True)], ids=["old", "new"])
def test_a_quota_charges_non_preemptible_pods_only(old: bool, new: bool) -> None:
    """A preemptible workload, terminating or new, does not count against this bound."""
    decision = decide(
        leaving(replace(OLD, preemptible=old)),
        replace(workload("new", "a", 4000), preemptible=new),
        projects=(TEAM,),
    )
    assert places(decision.bindings) == {"new-0": N2}


def test_a_preemptible_nominee_is_no_excuse_to_exceed_the_quota() -> None:
    """Two GPUs of a quota of two terminate. The nominated pod is preemptible, so the quota allows nothing more."""
    old = replace(leaving(running(workload("old", "a", 2000), "n1")), preemptible=False)
    nominee = nominated(workload("nominee", "a", 2000, age=1), "n1", 0, 1)
    new = replace(workload("new", "a", 2000, age=2), preemptible=False)
    decision = decide(old, nominee, new, projects=(project("a", 2000),))
    assert "new-0" not in places(decision.bindings)


def test_a_workload_within_the_bound_starts_beside_terminating_pods() -> None:
    old = replace(leaving(running(workload("old", "a", 2000), "n1")), preemptible=False)
    new = replace(workload("new", "a", 2000), preemptible=False)
    large = replace(workload("large", "a", 4000, age=1), preemptible=False)
    decision = decide(old, new, large, projects=(TEAM,))
    assert [binding.pod for binding in decision.bindings] == ["new-0"]
    assert "NonPreemptibleOverQuota" in str(decision.pending["large"].code.value)


def test_no_borrower_is_evicted_while_the_quota_waits_for_terminating_pods() -> None:
    """The devices of the terminating pods are enough. A borrower of another project keeps the other node."""
    old = replace(leaving(OLD), preemptible=False)
    lent = running(workload("lent", "b", 4000), "n2")
    new = replace(workload("new", "a", 4000), preemptible=False)
    teams = (TEAM, project("b", 0, over_quota_weight=1))
    for waiting in (new, nominated(new, "n1", 0, 1, 2, 3)):
        decision = decide(old, lent, waiting, projects=teams)
        assert (decision.bindings, decision.evictions) == ((), ())
        assert places(decision.nominations) == {"new-0": ("n1", (0, 1, 2, 3))}
    decision = decide(lent, nominated(new, "n1", 0, 1, 2, 3), projects=teams)
    assert places(decision.bindings) == {"new-0": ("n1", (0, 1, 2, 3))}
