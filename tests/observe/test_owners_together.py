"""A workload of several Jobs is read as one of a single Job: with unreadable pods, owners, and nominated successors."""

from dataclasses import replace
from typing import Any

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.control.decide.requeue_holds import RequeueHolds
from orchestrator.observe.owners import KindState
from orchestrator.observe.owners import Reading as KindReading
from orchestrator.observe.reader import Reader
from orchestrator.observe.snapshot import Reading
from orchestrator.planner import plan
from orchestrator.planner.model import Binding, Plan, PodState
from orchestrator.planner.placements import Placement
from tests.observe.bringing import controller, metadata_of, reference, replicated_job
from tests.observe.objects import by_uid, namespace, node, pod, project

JOBSET = {"replicatedJobs": [replicated_job("driver"), replicated_job("workers", 1, 2)]}
JOBS = [metadata_of("Job", f"js-{name}", owner=reference("JobSet", "js")) for name in ("driver", "workers")]
GPU_DEVICES = "muster.dev/gpu-devices"
NOTHING = Plan(bindings=(), evictions=(), shares_gpu_milli={}, allocated_gpu_milli={}, pending={})


def member(name: str, replicated: str, **fields: Any) -> Pod:
    """Return a pod of the Job that the JobSet makes for this entry of `replicatedJobs`."""
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": replicated}
    return pod(name, gpus=1, labels=labels, ownerReferences=[reference("Job", f"js-{replicated}")], **fields)


def reader_of(*objects: Any) -> Reader:
    """Return a reader that knows a node with eight GPUs, a healthy pod that fits on it, and these objects."""
    reader = Reader()
    things = (
        node("n-1"),
        namespace("muster-team-a", "team-a"),
        project("team-a", quota=8),
        pod("healthy", gpus=1),
    )
    for each in (*things, *objects):
        reader.note(Change("added", each))
    return reader


def bound(reading: Reading) -> set[str]:
    return {each.pod for each in plan(reading.snapshot).bindings}


def test_a_jobset_of_which_a_running_pod_cannot_be_read_is_held_whole() -> None:
    running = [
        member("d", "driver", node="n-1", annotations={GPU_DEVICES: "0"}),
        member("w-0", "workers", node="n-1", annotations={"muster.dev/gpu-fraction": "y"}),
    ]
    reading = reader_of(controller("JobSet", "js", JOBSET), *JOBS, *running, member("w-1", "workers")).read()
    assert [(each.name, "muster.dev/gpu-fraction" in each.why) for each in reading.skipped] == [
        ("d", True),
        ("w-0", True),
        ("w-1", True),
    ]
    held = next(each for each in reading.snapshot.workloads if each.name == "js")
    charged = [(each.name, each.sub_group, each.devices) for each in held.pods]
    assert charged == [("d", "", (0,)), ("w-0", "", (7,))], "w-0 holds one, nobody knows which"
    assert (held.id, held.groups, held.min_member) == ("JobSet/js", None, 1)


def test_a_gang_out_of_reach_on_an_owner_stops_its_own_pods_alone() -> None:
    members = [member("d", "driver"), member("w-0", "workers"), member("w-1", "workers")]
    annotations = {"muster.dev/min-member": "9" * 5000}
    reading = reader_of(controller("JobSet", "js", JOBSET, annotations=annotations), *JOBS, *members).read()
    assert [each.name for each in reading.skipped] == ["d", "w-0", "w-1"]
    assert all("its owner's annotation muster.dev/min-member" in each.why for each in reading.skipped)
    assert bound(reading) == {"uid-healthy"}


def test_an_owner_that_does_not_come_is_named_and_delays_no_other() -> None:
    reader = reader_of(member("d", "driver", node="n-1", annotations={GPU_DEVICES: "0"}))
    reader.note(Change("added", KindState(("batch", "Job"), KindReading.CURRENT)))
    reader.note(Change("added", member("w-0", "workers")))
    assert reader.read(now_us=1_000_000).skipped == ()
    reading = reader.read(now_us=60_000_000)
    assert [(each.name, "cannot be found" in each.why) for each in reading.skipped] == [("w-0", True)]
    assert bound(reading) == {"uid-healthy"}


def test_a_stand_in_is_in_the_workload_of_its_jobset_with_the_place_that_is_kept() -> None:
    # only the Job that made the pod says whether it makes a successor
    annotations = {GPU_DEVICES: "0", "muster.dev/eviction-reason": "reclaim: team-b is within its quota"}
    leaving = member(
        "w-0", "workers", node="n-1", annotations=annotations, deletionTimestamp="2026-11-21T10:00:00Z"
    )
    requeue_holds = RequeueHolds(lambda: 0.0, lambda _: False)
    requeue_holds.see(Change("modified", leaving, member("w-0", "workers", node="n-1")))
    requeue_holds.see(Change("deleted", leaving, leaving))
    (uid,) = requeue_holds.placeholders(by_uid(*JOBS))
    requeue_holds.take(replace(NOTHING, nominations=(Binding(uid, "JobSet/js", "n-1", (3,)),)), ())
    running = member("d", "driver", node="n-1", annotations={GPU_DEVICES: "0"})
    reader = reader_of(controller("JobSet", "js", JOBSET), *JOBS, running)
    reader.pods.expect(requeue_holds.placeholders(by_uid(*JOBS)), {})
    reading = reader.read()
    jobset = next(each for each in reading.snapshot.workloads if each.name == "js")
    pods = {each.id: each for each in jobset.pods}
    assert set(pods) == {"uid-d", uid}
    assert (pods[uid].state, pods[uid].sub_group) == (PodState.PENDING, "workers")
    assert (pods[uid].nominated_node, pods[uid].nominated_devices) == ("n-1", (3,))
    successor = member("w-0b", "workers")
    requeue_holds.see(Change("added", successor))
    assert requeue_holds.placeholders(by_uid(*JOBS)) == {}
    assert requeue_holds.inherited == {"uid-w-0b": Placement("n-1", (3,))}
    reader.note(Change("added", successor))
    reader.pods.expect({}, requeue_holds.inherited)
    reading = reader.read()
    assert {
        each.name: each.nominated_node
        for one in reading.snapshot.workloads
        if one.name == "js"
        for each in one.pods
    } == {"d": None, "w-0b": "n-1"}
