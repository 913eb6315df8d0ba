"""An evicted job keeps its place in the queue until its next pod is there."""

import msgspec

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import parse_time
from orchestrator.cluster.reflector import Change
from orchestrator.control.returning import PATIENCE_SECONDS, Returning
from orchestrator.planner.model import PodState
from orchestrator.workloads.reader import read
from orchestrator.workloads.snapshot import Observed
from tests.cluster.waiting import ManualClock
from tests.workloads.objects import by_uid, job, namespace, node, pod, project

JOBS = by_uid(job("train", "2026-11-21T09:00:00Z"))


def evicted(name: str) -> Pod:
    return pod(name, owner="train", gpus=2, node="dgx1-1", annotations={"muster.dev/gpu-devices": "0,1"})


def test_a_stand_in_waits_from_the_end_of_the_pod_to_its_successor() -> None:
    returning = Returning(ManualClock())
    gone = evicted("train-1")
    returning.note(gone)
    assert returning.stand_ins(by_uid(gone), JOBS) == {}, "the pod is still there"
    assert [each.metadata.name for each in returning.stand_ins({}, JOBS).values()] == ["train-1"]
    returning.see(Change("modified", pod("train-0", owner="train", gpus=2)))
    returning.see(Change("added", pod("other-1", owner="other", gpus=2)))
    assert len(returning.stand_ins({}, JOBS)) == 1, "no successor yet"
    returning.see(Change("added", pod("train-2", owner="train", gpus=2)))
    assert returning.stand_ins({}, JOBS) == {}


def test_a_stand_in_is_a_pending_pod_of_the_jobs_age() -> None:
    returning = Returning(ManualClock())
    gone = evicted("train-1")
    returning.note(gone)
    observed = Observed(
        nodes=by_uid(node("dgx1-1")),
        pods=returning.stand_ins({}, JOBS),
        namespaces=by_uid(namespace("muster-team-a", "team-a")),
        projects=by_uid(project("team-a", quota=4)),
        owners=(JOBS,),
    )
    (workload,) = read(observed).snapshot.workloads
    assert [(each.state, each.node, each.devices) for each in workload.pods] == [(PodState.PENDING, None, ())]
    assert workload.created_at_us == parse_time("2026-11-21T09:00:00Z")


def test_each_pod_of_a_gang_is_expected_once() -> None:
    returning = Returning(ManualClock())
    for index in range(3):
        returning.note(evicted(f"train-{index}"))
    assert len(returning.stand_ins({}, JOBS)) == 3
    returning.see(Change("added", pod("train-a", owner="train")))
    assert len(returning.stand_ins({}, JOBS)) == 2
    returning.see(Change("added", pod("train-b", owner="train")))
    assert len(returning.stand_ins({}, JOBS)) == 1


def test_nobody_is_waited_for_when_the_job_is_gone_or_the_time_is_up() -> None:
    clock = ManualClock()
    returning = Returning(clock)
    gone = evicted("train-1")
    returning.note(gone)
    assert returning.stand_ins({}, {}) == {}
    returning.note(gone)
    clock.now += PATIENCE_SECONDS
    assert returning.stand_ins({}, JOBS) == {}


def test_a_pod_without_an_owner_does_not_return() -> None:
    returning = Returning(ManualClock())
    bare = msgspec.structs.replace(pod("bare", node="dgx1-1"))
    returning.note(bare)
    assert returning.stand_ins({}, JOBS) == {}
