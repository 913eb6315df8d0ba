"""Pods that muster did not bind: their GPUs count, never more than the node has, and can be reclaimed."""

from collections import Counter
from typing import Any

import pytest

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.observe.reader import Reader
from orchestrator.observe.snapshot import Reading
from orchestrator.planner import plan
from orchestrator.planner.model import Plan, PodState, Snapshot
from orchestrator.planner.placements import Placement
from tests.observe.assuming import assume
from tests.observe.objects import namespace, node, pod, project

STARTED = "2026-11-21T10:00:10Z"
DEVICES = "muster.dev/gpu-devices"
FRACTION = "muster.dev/gpu-fraction"
ELSEWHERE = {"schedulerName": "default-scheduler"}


def bound(name: str, gpus: int = 0, team: str = "a", **more: Any) -> Pod:
    """Return a running pod that a member of the team bound by its nodeName."""
    fields = {"node": "n-1", "is_admitted": False, "started": STARTED, "phase": "Running", **more}
    return pod(name, namespace=f"muster-team-{team}", gpus=gpus, **fields)


def admitted(name: str, devices: str, team: str = "b", **more: Any) -> Pod:
    """Return a running pod that muster bound to these devices."""
    gpus = len(devices.split(","))
    return bound(name, gpus, team, is_admitted=True, annotations={DEVICES: devices}, **more)


def waiting(name: str, gpus: int, team: str = "b", **more: Any) -> Pod:
    return pod(name, namespace=f"muster-team-{team}", gpus=gpus, **more)


def reader_of(*pods: Pod, quotas: tuple[int, int] = (4, 4)) -> Reader:
    reader = Reader()
    for each in (
        node("n-1"),
        namespace("muster-team-a", "team-a"),
        namespace("muster-team-b", "team-b"),
        project("team-a", quota=quotas[0]),
        project("team-b", quota=quotas[1]),
        *pods,
    ):
        reader.note(Change("added", each))
    return reader


def held(snapshot: Snapshot) -> dict[str, tuple[int, ...]]:
    """Return the devices of each pod that has a node, by the pod's name."""
    return {
        each.name: each.devices for one in snapshot.workloads for each in one.pods if each.node is not None
    }


def decided(reading: Reading) -> Plan:
    """Return the plan. Check that no device is given to two pods, and that no more is allocated than exists."""
    decision = plan(reading.snapshot)
    whole = Counter(
        device
        for one in reading.snapshot.workloads
        for each in one.pods
        if each.node is not None and each.request.gpu_count
        for device in each.devices
    )
    whole.update(device for binding in decision.bindings for device in binding.devices)
    assert not [device for device, times in whole.items() if times > 1]
    assert sum(decision.allocated_gpu_milli.values()) <= 8000
    return decision


def named(reading: Reading) -> dict[str, str]:
    return {each.name: each.why for each in reading.skipped}


ATTEMPTS = {
    "(a) without the scheduler's name": [bound("x", 8, spec=ELSEWHERE)],
    "(b) not preemptible, by nodeName": [bound("x", 8, annotations={"muster.dev/preemptible": "false"})],
    "(b) interactive": [bound("x", 8, labels={"muster.dev/type": "interactive"})],
    "(c) a fraction that is none": [bound("x", 8, annotations={FRACTION: "x"})],
    "(c) a gang that is none": [bound("x", 8, annotations={"muster.dev/min-member": "9" * 30})],
    "(e) no devices": [bound("x", 8, annotations={DEVICES: ""})],
    "the same devices twice": [bound(f"x-{each}", 4, annotations={DEVICES: "0,1,2,3"}) for each in range(2)],
    "devices that the node does not have": [bound("x", 8, annotations={DEVICES: "8,9,10,11,12,13,14,15"})],
    "more GPUs than there are": [bound("x", 1000)],
    "more GPUs than can be meant": [bound("x", (1 << 63) - 1, spec=ELSEWHERE)],
    "the mark of another pod": [bound("x", 8, annotations={"muster.dev/admitted": "uid-y"})],
    "by one of many": [bound(f"x-{each}", 1, spec=ELSEWHERE) for each in range(8)],
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_pod_bound_by_another_is_charged_and_evicted_for_a_quota(attempt: str) -> None:
    reader = reader_of(*ATTEMPTS[attempt])
    assert decided(reader.read()).allocated_gpu_milli == {"team-a": 8000, "team-b": 0}
    reader.note(Change("added", waiting("claim", 4)))
    reading = reader.read()
    decision = decided(reading)
    victims = {each.pod for each in decision.evictions}
    assert victims, "the quota of team-b is made room for"
    assert [each.pod for each in decision.nominations] == ["uid-claim"]
    assert set(named(reading)) == {each.metadata.name for each in ATTEMPTS[attempt]}
    for each in ATTEMPTS[attempt]:
        if each.metadata.uid in victims:
            reader.note(Change("deleted", each))
    after = decided(reader.read())
    assert [each.pod for each in after.bindings] == ["uid-claim"]
    assert after.allocated_gpu_milli["team-b"] == 4000


def test_within_the_quota_it_keeps_running() -> None:
    reading = reader_of(bound("x", 4, spec=ELSEWHERE), waiting("first", 4), waiting("second", 1)).read()
    decision = decided(reading)
    assert (decision.evictions, [each.pod for each in decision.bindings]) == ((), ["uid-first"])
    assert decision.allocated_gpu_milli == {"team-a": 4000, "team-b": 4000}


def test_devices_written_on_a_pod_without_gpus_are_nobodys() -> None:
    forged = bound("x", annotations={DEVICES: "0,1,2,3,4,5,6,7"})
    reading = reader_of(forged, waiting("claim", 8), quotas=(0, 8)).read()
    assert held(reading.snapshot) == {"x": ()}
    assert [each.pod for each in decided(reading).bindings] == ["uid-claim"]
    assert named(reading)["x"] == (
        "another scheduler bound it: GPUs over its project's quota may be reclaimed; its annotation "
        f"{DEVICES} is '0,1,2,3,4,5,6,7' and ignored; it counts as holding no GPU"
    )


def test_gpus_given_by_muster_are_never_taken_by_an_annotation() -> None:
    mine = admitted("mine", "2,3,4,5")
    reading = reader_of(mine, bound("x", 4, annotations={DEVICES: "2,3,4,5"})).read()
    assert held(reading.snapshot) == {"mine": (2, 3, 4, 5), "x": (0, 1, 6, 7)}
    assert list(named(reading)) == ["x"]


def test_no_more_is_held_than_the_node_has() -> None:
    """Attempt (e): with 5 GPUs held by muster's pod and 8 by the other, 13 GPUs of a node with
    8 would count as held.
    """
    mine, taken = admitted("mine", "0,1,2,3,4"), bound("x", 8, annotations={DEVICES: ""})
    reader = reader_of(mine, taken)
    reading = reader.read()
    assert held(reading.snapshot) == {"mine": (0, 1, 2, 3, 4), "x": (5, 6, 7)}
    assert decided(reading).allocated_gpu_milli == {"team-a": 3000, "team-b": 5000}
    assert "its node n-1 has no more for it; it counts as holding 3 GPUs" in named(reading)["x"]
    reader.note(Change("deleted", mine))
    assert held(reader.read().snapshot) == {"x": (0, 1, 2, 3, 4, 5, 6, 7)}


def test_fractions_are_held_beside_each_other_as_far_as_they_fit() -> None:
    halves = [bound(f"h-{each}", annotations={FRACTION: "0.5"}) for each in range(3)]
    reading = reader_of(admitted("mine", "0,1,2,3,4,5,6"), *halves).read()
    assert held(reading.snapshot) == {"mine": (0, 1, 2, 3, 4, 5, 6), "h-0": (7,), "h-1": (7,), "h-2": ()}
    assert decided(reading).allocated_gpu_milli == {"team-a": 1000, "team-b": 7000}


def test_other_schedulers_pods_outside_of_projects_are_not_on_devices_that_muster_gave_away() -> None:
    system = bound("system", 2, spec=ELSEWHERE, team="none")
    reading = reader_of(admitted("mine", "6,7"), system, waiting("large", 6), waiting("small", 4)).read()
    (planned,) = reading.snapshot.nodes
    assert (planned.foreign.gpu_count, planned.foreign_devices) == (2, (4, 5))
    assert [(each.pod, each.devices) for each in decided(reading).bindings] == [("uid-small", (0, 1, 2, 3))]
    assert named(reading) == {}, "nobody is told about pods that are no business of projects"


def test_a_namespace_that_comes_to_a_project_brings_its_pods() -> None:
    reader = reader_of(bound("x", 3, spec=ELSEWHERE, team="new"))
    (planned,) = reader.read().snapshot.nodes
    assert (planned.foreign.gpu_count, planned.foreign_pods) == (3, 1)
    reader.note(Change("added", namespace("muster-team-new", "team-new")))
    assert reader.read().snapshot.nodes == (planned,), "there is no such project yet"
    reader.note(Change("added", project("team-new", quota=4)))
    reading = reader.read()
    assert (reading.snapshot.nodes[0].foreign.gpu_count, reading.snapshot.nodes[0].foreign_pods) == (0, 0)
    assert decided(reading).allocated_gpu_milli == {"team-a": 0, "team-b": 0, "team-new": 3000}
    reader.note(Change("modified", namespace("muster-team-new")))
    assert reader.read().snapshot.workloads == ()


def test_a_pod_bound_by_hand_to_nominated_gpus_does_not_get_them() -> None:
    mine, claim = admitted("mine", "0,1,2,3"), waiting("claim", 4)
    late = bound("late", 4, started="", phase="Pending")
    reader = reader_of(mine, claim, late)
    reader.pods.nominate("uid-claim", Placement("n-1", (4, 5, 6, 7)))
    reading = reader.read()
    assert held(reading.snapshot)["late"] == ()
    assert [each.pod for each in decided(reading).bindings] == ["uid-claim"]
    reader.note(Change("modified", bound("late", 4)))
    assert held(reader.read().snapshot)["late"] == (4, 5, 6, 7), "its kubelet has taken it in"


def test_a_binding_that_is_under_way_comes_before_pods_bound_by_hand() -> None:
    reader = reader_of(waiting("claim", 6), bound("x", 4))
    assert held(reader.read().snapshot) == {"x": (4, 5, 6, 7)}
    reader.pods.bind("uid-claim", Placement("n-1", (2, 3, 4, 5, 6, 7)))
    assert held(reader.read().snapshot) == {"x": (0, 1), "claim": (2, 3, 4, 5, 6, 7)}


def test_nothing_but_eviction_is_decided_for_a_pod_of_another_scheduler() -> None:
    members = [
        bound(f"x-{each}", 1, owner="x", spec=ELSEWHERE, annotations={"muster.dev/min-member": "4"})
        for each in range(2)
    ]
    reading = reader_of(*members, bound("later", 1, node="", spec=ELSEWHERE)).read(now_us=5)
    assert [(each.name, each.id, each.min_member) for each in reading.snapshot.workloads] == [
        ("x", "uid-x-0", 1),
        ("x", "uid-x-1", 1),
    ]
    assert not any(each.stale_since_us for each in reading.snapshot.workloads)


@pytest.mark.parametrize(
    ("grace", "state"),
    [(None, PodState.RELEASING), (600, PodState.RELEASING), (31_536_000, PodState.ALLOCATED)],
)
def test_a_pod_deleted_with_a_year_of_grace_counts_until_it_is_evicted(
    grace: int | None, state: PodState
) -> None:
    leaving: dict[str, Any] = {
        "deletionTimestamp": "2027-11-21T10:00:00Z",
        "deletionGracePeriodSeconds": grace,
    }
    reader = reader_of(admitted("mine", "0,1", team="a", **leaving), bound("x", 2, spec=ELSEWHERE, **leaving))
    states = {each.name: each.pods[0].state for each in reader.read().snapshot.workloads}
    assert states == {"mine": state, "x": state}
    assume(reader.pods, evictions=("uid-mine", "uid-x"))
    after = reader.read().snapshot
    assert {each.pods[0].state for each in after.workloads} == {PodState.RELEASING}


def test_no_pod_escapes_the_quota_by_an_annotation_after_it_borrowed() -> None:
    """While a pod of the workload borrows, its successor that is not preemptible waits."""
    fixed = {"muster.dev/preemptible": "false"}
    lent = [admitted(f"old-{number}", str(number), "a", owner="set") for number in range(3)]
    fresh = waiting("new", 1, "a", owner="set", annotations=fixed)
    reader = reader_of(*lent, fresh, quotas=(1, 7))
    for old in lent:
        reading = reader.read()
        (workload,) = reading.snapshot.workloads
        assert (workload.preemptible, plan(reading.snapshot).bindings) == (True, ())
        assert "must be the same on all" in reading.unreadable_pods["uid-new"]
        reader.note(Change("deleted", old))
    reading = reader.read()
    (workload,) = reading.snapshot.workloads
    assert (workload.preemptible, reading.unreadable_pods) == (False, {})
    assert [binding.pod for binding in plan(reading.snapshot).bindings] == ["uid-new"]


def test_a_workload_of_which_one_pod_is_borrowed_is_borrowed() -> None:
    fixed = {"muster.dev/preemptible": "false", DEVICES: "0"}
    pods = [
        bound("fixed", 1, is_admitted=True, owner="set", annotations=fixed),
        admitted("lent", "1", "a", owner="set"),
    ]
    for order in (pods, pods[::-1]):
        (workload,) = reader_of(*order).read().snapshot.workloads
        assert workload.preemptible
