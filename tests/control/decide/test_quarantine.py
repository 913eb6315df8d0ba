"""The objects that are left out when the planner raises, and for how long: on the real
planner, which is made to raise.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from orchestrator.control.decide.quarantine import (
    FIRST_SECONDS,
    MAX_SECONDS,
    Culprit,
    Quarantine,
    holding,
)
from orchestrator.planner import plan
from orchestrator.planner.model import Plan, PodState, Snapshot, Workload
from tests.cluster.waiting import ManualClock
from tests.planner.builders import node, project, workload


class Defective:
    """The planner, which raises if `is_bad` is true for the snapshot, and counts its calls."""

    def __init__(self, is_bad: Callable[[Snapshot], bool]) -> None:
        self.is_bad = is_bad
        self.plans = 0

    def __call__(self, snapshot: Snapshot) -> Plan:
        self.plans += 1
        if self.is_bad(snapshot):
            raise ZeroDivisionError("a mistake")
        return plan(snapshot)


def names(snapshot: Snapshot) -> set[str]:
    """Return the names of the workloads with pending pods, of the nodes, and of the projects."""
    decided_on = {
        each.name for each in snapshot.workloads if any(pod.state is PodState.PENDING for pod in each.pods)
    }
    nodes, projects = {each.name for each in snapshot.nodes}, {each.name for each in snapshot.projects}
    return decided_on | nodes | projects


def any_of(*bad: str) -> Callable[[Snapshot], bool]:
    return lambda snapshot: bool(names(snapshot) & set(bad))


def all_of(*bad: str) -> Callable[[Snapshot], bool]:
    return lambda snapshot: names(snapshot) >= set(bad)


def snapshot_of(workloads: Iterable[Workload], nodes: int = 4) -> Snapshot:
    return Snapshot(
        nodes=tuple(node(f"n-{each}", gpus=64) for each in range(nodes)),
        projects=(project("a", 100_000), project("b", 100_000)),
        workloads=tuple(sorted(workloads, key=lambda each: each.id)),
    )


def jobs(count: int, project: str = "a") -> list[Workload]:
    return [workload(f"{project}-job-{each:03}", project, 1000, age=each) for each in range(count)]


def bound(plan: Plan) -> set[str]:
    return {each.workload for each in plan.bindings}


@pytest.mark.parametrize("count", [1, 2, 3, 60])
@pytest.mark.parametrize("position", [0, -1])
def test_one_workload_is_left_out_and_the_rest_is_decided_at_once(count: int, position: int) -> None:
    everything = jobs(count)
    culprit = everything[position].id
    planner = Defective(any_of(culprit))
    decided = Quarantine(planner, ManualClock()).decide(snapshot_of(everything))
    assert bound(decided.plan) == {each.id for each in everything} - {culprit}
    assert decided.quarantined == (
        Culprit("Workload", culprit, everything[position], "ZeroDivisionError: a mistake"),
    )
    assert planner.plans <= 60


def test_several_workloads_are_found_in_one_decision() -> None:
    bad = [f"a-job-{each:03}" for each in (0, 7, 8, 40, 59)]
    decided = Quarantine(Defective(any_of(*bad)), ManualClock()).decide(snapshot_of(jobs(60)))
    assert [each.id for each in decided.quarantined] == bad
    assert len(bound(decided.plan)) == 55


@pytest.mark.parametrize("pair", [("a-job-000", "a-job-059"), ("a-job-010", "a-job-011")])
def test_of_a_pair_that_raises_only_together_one_is_left_out(pair: tuple[str, str]) -> None:
    decided = Quarantine(Defective(all_of(*pair)), ManualClock()).decide(snapshot_of(jobs(60)))
    (culprit,) = decided.quarantined
    assert culprit.id in pair
    assert len(bound(decided.plan)) == 59


def test_a_pair_and_one_alone() -> None:
    def is_bad(snapshot: Snapshot) -> bool:
        return any_of("a-job-030")(snapshot) or all_of("a-job-001", "a-job-050")(snapshot)

    decided = Quarantine(Defective(is_bad), ManualClock()).decide(snapshot_of(jobs(60)))
    assert {each.id for each in decided.quarantined} in (
        {"a-job-030", "a-job-050"},
        {"a-job-030", "a-job-001"},
    )
    assert len(bound(decided.plan)) == 58


@pytest.mark.parametrize("count", [1, 20])
def test_a_node_on_which_everything_raises_is_left_out(count: int) -> None:
    def is_bad(snapshot: Snapshot) -> bool:
        return "n-2" in names(snapshot) and bool(snapshot.workloads)

    decided = Quarantine(Defective(is_bad), ManualClock()).decide(snapshot_of(jobs(count)))
    assert [each.key for each in decided.quarantined] == [("Node", "n-2")]
    assert len(bound(decided.plan)) == count


def test_a_node_that_raises_without_any_work_is_left_out() -> None:
    decided = Quarantine(Defective(any_of("n-0")), ManualClock()).decide(snapshot_of(jobs(3)))
    assert [each.key for each in decided.quarantined] == [("Node", "n-0")]
    assert len(bound(decided.plan)) == 3


def test_a_project_that_raises_is_left_out_with_its_work() -> None:
    decided = Quarantine(Defective(any_of("b")), ManualClock()).decide(snapshot_of([*jobs(3), *jobs(3, "b")]))
    assert [each.key for each in decided.quarantined] == [("Project", "b")]
    assert bound(decided.plan) == {each.id for each in jobs(3)}


def test_many_bad_workloads_do_not_cost_the_only_node() -> None:
    bad = {f"a-job-{each:03}" for each in range(9)}
    decided = Quarantine(Defective(any_of(*bad)), ManualClock()).decide(snapshot_of(jobs(10), nodes=1))
    assert {each.id for each in decided.quarantined} == bad
    assert bound(decided.plan) == {"a-job-009"}


def test_a_planner_that_always_raises_is_not_hidden() -> None:
    quarantine = Quarantine(Defective(lambda _snapshot: True), ManualClock())
    with pytest.raises(ZeroDivisionError):
        quarantine.decide(snapshot_of(jobs(5)))


def running(name: str, devices: tuple[int, ...], on: str = "n-0") -> Workload:
    """Return a running job with one more, pending pod."""
    base = workload(name, "a", len(devices) * 1000, pods=2)
    first = replace(base.pods[0], state=PodState.ALLOCATED, node=on, devices=devices)
    return replace(base, pods=(first, base.pods[1]))


def test_the_gpus_of_a_running_culprit_are_given_to_no_pod() -> None:
    culprit = running("bad", tuple(range(4, 64)))
    decided = Quarantine(Defective(any_of("bad")), ManualClock()).decide(
        snapshot_of([culprit, *jobs(10)], nodes=1)
    )
    assert sorted(each.devices for each in decided.plan.bindings) == [(0,), (1,), (2,), (3,)]
    assert decided.plan.allocated_gpu_milli["a"] == 64_000
    assert not decided.plan.evictions


def test_a_running_culprit_that_raises_in_any_form_holds_its_gpus_as_if_it_were_another_schedulers() -> None:
    culprit = running("bad", tuple(range(4, 64)))

    def is_bad(snapshot: Snapshot) -> bool:
        return any(each.name == "bad" for each in snapshot.workloads)

    quarantine = Quarantine(Defective(is_bad), ManualClock())
    for _ in range(2):
        decided = quarantine.decide(snapshot_of([culprit, *jobs(10)], nodes=1))
        assert len(bound(decided.plan)) == 4
        assert [each.id for each in decided.quarantined] == ["bad"]


def test_an_undecidable_running_pod_has_no_conditions() -> None:
    held = holding(running("bad", (1, 2)))
    assert ([each.devices for each in held.pods], held.preemptible, held.min_member) == ([(1, 2)], False, 1)


def test_a_culprit_is_left_out_for_a_time_that_doubles() -> None:
    clock = ManualClock()
    planner = Defective(any_of("a-job-001"))
    quarantine = Quarantine(planner, clock)
    snapshot = snapshot_of(jobs(30))
    seconds = FIRST_SECONDS
    for _ in range(10):
        quarantine.decide(snapshot)
        plans = planner.plans
        clock.now += seconds - 1
        assert [each.id for each in quarantine.decide(snapshot).quarantined] == ["a-job-001"]
        assert planner.plans == plans + 1, "it was tried before its time"
        clock.now += 1
        seconds = min(MAX_SECONDS, 2 * seconds)
    plans = planner.plans
    quarantine.decide(snapshot)
    assert planner.plans <= plans + 5, "a relapse is looked for where it was"


def test_a_culprit_that_changes_is_tried_at_once_and_forgotten_in_time() -> None:
    clock = ManualClock()
    planner = Defective(any_of("a-job-001"))
    quarantine = Quarantine(planner, clock)
    everything = jobs(5)
    quarantine.decide(snapshot_of(everything))
    planner.is_bad = lambda _snapshot: False
    assert quarantine.decide(snapshot_of(everything)).quarantined
    changed = [replace(each, priority=60) if each.id == "a-job-001" else each for each in everything]
    decided = quarantine.decide(snapshot_of(changed))
    assert (decided.quarantined, len(bound(decided.plan))) == ((), 5)
    clock.now += 3 * MAX_SECONDS
    planner.is_bad = any_of("a-job-001")
    quarantine.decide(snapshot_of(everything))
    clock.now += FIRST_SECONDS
    planner.is_bad = lambda _snapshot: False
    assert not quarantine.decide(snapshot_of(everything)).quarantined, "it began anew"


def test_of_former_culprits_only_those_that_raise_again_are_left_out_again() -> None:
    clock = ManualClock()
    planner = Defective(any_of("a-job-001", "a-job-002"))
    quarantine = Quarantine(planner, clock)
    quarantine.decide(snapshot_of(jobs(30)))
    clock.now += FIRST_SECONDS
    planner.is_bad = any_of("a-job-002")
    decided = quarantine.decide(snapshot_of(jobs(30)))
    assert [each.id for each in decided.quarantined] == ["a-job-002"]
    assert len(bound(decided.plan)) == 29


def test_with_more_culprits_than_plans_the_well_objects_continue_and_the_rest_is_found_later() -> None:
    bad = {f"a-job-{each:03}" for each in range(0, 60, 2)}
    planner = Defective(any_of(*bad))
    quarantine = Quarantine(planner, ManualClock(), max_plans=20)
    decisions = 0
    while True:
        decided = quarantine.decide(snapshot_of(jobs(60)))
        decisions += 1
        if not decided.undecided:
            break
        assert not bound(decided.plan) & bad
        assert decisions < 30
    assert {each.id for each in decided.quarantined} == bad
    assert len(bound(decided.plan)) == 30


def test_a_search_ends_in_time() -> None:
    clock = ManualClock()

    class Slow(Defective):
        def __call__(self, snapshot: Snapshot) -> Plan:
            clock.now += 2
            return super().__call__(snapshot)

    bad = {f"a-job-{each:03}" for each in range(0, 60, 2)}
    quarantine = Quarantine(Slow(any_of(*bad)), clock)
    decided = quarantine.decide(snapshot_of(jobs(60)))
    assert clock.now - ManualClock().now < 60
    assert decided.quarantined
    assert decided.undecided
