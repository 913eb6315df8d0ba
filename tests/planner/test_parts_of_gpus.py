"""GPU fractions: a fraction waits for a GPU that stays shared rather than share another one."""

from dataclasses import dataclass, replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import PodState, Snapshot, Workload
from tests.planner.builders import node, project, workload


def holds(
    name: str, gpu_milli: int, device: int, state: PodState = PodState.ALLOCATED, place: str = "node-0"
) -> Workload:
    new = workload(name, "a", gpu_milli)
    pods = tuple(replace(pod, state=state, node=place, devices=(device,)) for pod in new.pods)
    return replace(new, pods=pods, started_at_us=1)


@dataclass(frozen=True)
class Case:
    """The pods on the node, and the placement of half a GPU: the device, and whether the
    fraction is nominated to it.
    """

    on_the_node: tuple[Workload, ...]
    device: int
    waits: bool
    gpus: int = 2


LEAVES = PodState.RELEASING


@pytest.mark.parametrize(
    "case",
    [
        Case((holds("stays", 500, 0), holds("leaves", 500, 0, LEAVES)), device=0, waits=True),
        Case((holds("stays", 700, 0), holds("leaves", 300, 0, LEAVES)), device=1, waits=False),
        Case((holds("leaves", 500, 0, LEAVES), holds("leaves-too", 500, 0, LEAVES)), device=1, waits=False),
        Case((holds("whole", 1000, 0, LEAVES),), device=1, waits=False),
        Case((holds("stays", 500, 0), holds("leaves", 300, 0, LEAVES)), device=1, waits=False, gpus=1),
    ],
    ids=["room on a shared one", "too little room there", "nobody stays", "a whole one", "nowhere else"],
)
def test_a_fraction_waits_for_a_gpu_that_remains_shared_rather_than_open_another(case: Case) -> None:
    decision = plan(
        Snapshot(
            (node("node-0", case.gpus),),
            (project("a", 8000),),
            (*case.on_the_node, workload("new", "a", 500, age=9)),
        )
    )
    bound, nominated = (
        {each.devices for each in entries} for entries in (decision.bindings, decision.nominations)
    )
    expected = {(case.device,)}
    if case.gpus == 1:
        assert nominated == {(0,)}
    else:
        assert (bound, nominated) == ((set(), expected) if case.waits else (expected, set()))


def test_it_is_bound_there_when_the_gpu_is_free_and_not_on_another_before() -> None:
    new = workload("new", "a", 500, age=9)
    pods = tuple(replace(pod, nominated_node="node-0", nominated_devices=(0,)) for pod in new.pods)
    new = replace(new, pods=pods)
    world = Snapshot((node("node-0", 2),), (project("a", 8000),), (holds("stays", 500, 0), new))
    leaves = holds("leaves", 500, 0, LEAVES)
    waiting = plan(replace(world, workloads=(*world.workloads, leaves)))
    assert waiting.bindings == ()
    assert [each.devices for each in waiting.nominations] == [(0,)]
    assert [each.devices for each in plan(world).bindings] == [(0,)]
