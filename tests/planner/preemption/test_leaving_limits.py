"""A limit is for what is really held: who takes the place of others in a limit waits until they are gone."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import GPU_MODEL_LABEL, GpuModelBounds, Plan, Project, Snapshot, Workload
from tests.planner.builders import node, project, workload
from tests.planner.preemption.test_nominations import leaving, nominated, places
from tests.planner.test_better import running

LIMITED = project("a", 2000, limit_gpu_milli=4000)
OLD = running(workload("old", "a", 4000, priority=0), "n1")


def decide(*work: Workload, projects: Iterable[Project] = (LIMITED,)) -> Plan:
    nodes = tuple(node(name, 4, labels={GPU_MODEL_LABEL: "A100"}) for name in ("n1", "n2"))
    return plan(Snapshot(nodes, tuple(projects), work))


def test_who_is_evicted_for_a_limit_goes_before_the_other_starts() -> None:
    """The other node is free, and until the old job is gone the project would hold eight GPUs."""
    new = workload("new", "a", 4000, age=1)
    decision = decide(OLD, new)
    assert [eviction.pod for eviction in decision.evictions] == ["old-0"]
    assert decision.bindings == ()
    assert places(decision.nominations) == {"new-0": ("n2", (0, 1, 2, 3))}
    waits = nominated(new, "n2", 0, 1, 2, 3)
    decision = decide(leaving(OLD), waits)
    assert (decision.bindings, decision.evictions) == ((), ())
    assert places(decision.nominations) == {"new-0": ("n2", (0, 1, 2, 3))}
    assert decision.pending["new"].message == (
        "is nominated to node n2 with 4 GPUs, and waits for pods of a to go that its limit counts until then"
    )
    assert places(decide(waits).bindings) == {"new-0": ("n2", (0, 1, 2, 3))}


@pytest.mark.parametrize(
    "projects",
    [
        (project("top", 2000, limit_gpu_milli=4000), project("a", 2000, parent="top")),
        (project("a", 2000, gpu_models=(GpuModelBounds("A100", 2000, 4000),)),),
        (replace(LIMITED, limit_gpu_milli=None, limit_cpu_milli=4000),),
    ],
    ids=["department", "model", "CPU"],
)
def test_limits_of_every_kind_count_what_leaves(projects: tuple[Project, ...]) -> None:
    def with_cpus(work: Workload) -> Workload:
        (pod,) = work.pods
        return replace(work, pods=(replace(pod, request=replace(pod.request, cpu_milli=4000)),))

    decision = decide(leaving(with_cpus(OLD)), with_cpus(workload("new", "a", 4000)), projects=projects)
    assert decision.bindings == ()
    assert places(decision.nominations) == {"new-0": ("n2", (0, 1, 2, 3))}


def test_a_nominee_does_not_start_elsewhere_before_the_limit_has_room_for_it() -> None:
    decision = decide(leaving(OLD), nominated(workload("new", "a", 4000), "n1", 0, 1, 2, 3))
    assert decision.bindings == ()
    assert places(decision.nominations) == {"new-0": ("n1", (0, 1, 2, 3))}


def test_who_is_nominated_holds_nothing_yet() -> None:
    """One GPU is used, two leave, two more are promised: the fourth of the limit is free."""
    used = running(workload("used", "a", 1000), "n1")
    old = leaving(running(workload("old", "a", 2000), "n1", 1))
    new = nominated(workload("new", "a", 2000), "n1", 1, 2)
    decision = decide(used, old, new, workload("small", "a", 1000, age=1))
    assert [binding.pod for binding in decision.bindings] == ["small-0"]
    assert places(decision.nominations) == {"new-0": ("n1", (1, 2))}


def test_who_should_be_gone_and_is_not_keeps_nobody_waiting() -> None:
    (pod,) = leaving(OLD).pods
    stuck = replace(OLD, pods=(replace(pod, stuck=True),))
    assert places(decide(stuck, workload("new", "a", 4000)).bindings) == {"new-0": ("n2", (0, 1, 2, 3))}


def test_without_a_limit_nobody_waits_for_what_leaves() -> None:
    decision = decide(leaving(OLD), workload("new", "a", 4000), projects=(project("a", 2000),))
    assert places(decision.bindings) == {"new-0": ("n2", (0, 1, 2, 3))}
