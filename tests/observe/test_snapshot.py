"""The planner's snapshot, as it is read from objects of the cluster."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Project
from orchestrator.observe.pod_cache import bound, evicted
from orchestrator.observe.reader import read
from orchestrator.observe.snapshot import Observed
from orchestrator.planner.model import PodState, Workload
from orchestrator.planner.placements import Placement
from tests.observe.objects import by_uid, decoded, job, namespace, node, pod, project


def observed(*pods: Any, **changes: Any) -> Observed:
    fields = {
        "nodes": by_uid(node("dgx1-1"), node("dgx1-2")),
        "pods": by_uid(*pods),
        "namespaces": by_uid(namespace("muster-team-a", "team-a"), namespace("default")),
        "projects": by_uid(project("team-a", quota=4)),
    }
    return Observed(**{**fields, **changes})


def workloads(*pods: Any, **changes: Any) -> dict[str, Workload]:
    return {each.name: each for each in read(observed(*pods, **changes)).snapshot.workloads}


def test_pods_of_one_owner_are_one_workload_and_a_bare_pod_is_its_own() -> None:
    found = read(observed(pod("a-1", owner="a"), pod("a-2", owner="a"), pod("bare"))).snapshot.workloads
    assert sorted((each.name, len(each.pods)) for each in found) == [("a", 2), ("bare", 1)]


def test_the_label_of_the_namespace_names_the_project() -> None:
    assert workloads(pod("p"))["p"].project == "team-a"
    assert workloads(pod("p", namespace="default"))["p"].project == ""


def test_pods_that_have_ended_or_wait_for_something_else_are_left_out() -> None:
    gated = {"schedulingGates": [{"name": "other"}]}
    assert (
        workloads(
            pod("done", phase="Succeeded", node="dgx1-1"),
            pod("failed", phase="Failed", node="dgx1-1"),
            pod("gated", spec=gated),
            pod("going", deletionTimestamp="2026-11-21T10:00:00Z"),
        )
        == {}
    )


def test_pods_of_other_schedulers_are_counted_on_their_nodes() -> None:
    other = pod(
        "other", gpus=3, namespace="default", node="dgx1-1", spec={"schedulerName": "default-scheduler"}
    )
    reading = read(observed(other))
    assert reading.snapshot.workloads == ()
    assert [(each.foreign.gpu_count, each.foreign_pods) for each in reading.snapshot.nodes] == [
        (3, 1),
        (0, 0),
    ]


def test_annotations_of_pods_that_are_not_ours_mean_nothing() -> None:
    other = pod(
        "other",
        namespace="default",
        node="dgx1-1",
        annotations={"muster.dev/gpu-fraction": "rubbish"},
        spec={"schedulerName": "default-scheduler"},
    )
    assert [each.foreign_pods for each in read(observed(other)).snapshot.nodes] == [1, 0]


@pytest.mark.parametrize(
    ("changes", "state", "devices"),
    [
        ({}, PodState.PENDING, ()),
        ({"node": "dgx1-1", "annotations": {"muster.dev/gpu-devices": "3,5"}}, PodState.ALLOCATED, (3, 5)),
        (
            {
                "node": "dgx1-1",
                "deletionTimestamp": "2026-11-21T10:00:00Z",
                "annotations": {"muster.dev/gpu-devices": "0,1"},
            },
            PodState.RELEASING,
            (0, 1),
        ),
    ],
)
def test_a_pod_is_pending_allocated_or_releasing(
    changes: dict[str, Any], state: PodState, devices: tuple[int, ...]
) -> None:
    (found,) = workloads(pod("p", gpus=2, **changes))["p"].pods
    assert (found.state, found.devices) == (state, devices)


def test_a_binding_that_the_watch_has_not_shown_yet_counts() -> None:
    (found,) = workloads(bound(pod("p", gpus=2), Placement("dgx1-2", (0, 1))))["p"].pods
    assert (found.state, found.node, found.devices) == (PodState.ALLOCATED, "dgx1-2", (0, 1))


def test_an_eviction_that_the_watch_has_not_shown_yet_counts() -> None:
    (found,) = workloads(evicted(pod("p", gpus=2, node="dgx1-2")))["p"].pods
    assert found.state is PodState.RELEASING


def test_an_evicted_job_keeps_the_age_of_the_job_not_of_its_new_pod() -> None:
    old, young = job("old", "2026-11-21T09:00:00Z"), job("young", "2026-11-21T09:30:00Z")
    found = workloads(
        pod("old-2", owner="old", creationTimestamp="2026-11-21T11:00:00Z"),
        pod("young-1", owner="young", creationTimestamp="2026-11-21T09:30:00Z"),
        owners=(by_uid(old, young),),
    )
    assert found["old"].created_at_us < found["young"].created_at_us


@pytest.mark.parametrize(
    ("since", "is_last"),
    [("2026-11-21T11:30:00.5Z", True), ("2026-11-21T08:00:00Z", False), ("soon", False)],
)
def test_a_requeued_job_is_the_last_and_no_annotation_makes_it_older(since: str, is_last: bool) -> None:
    old = job("old", "2026-11-21T09:00:00Z", queued_since=since)
    again = pod("old-1", owner="old", creationTimestamp="2026-11-21T11:30:01Z")
    plain = workloads(again, owners=(by_uid(job("old", "2026-11-21T09:00:00Z")),))
    young = job("young", "2026-11-21T09:30:00Z")
    found = workloads(again, pod("young-1", owner="young"), owners=(by_uid(old, young),))
    assert (found["old"].created_at_us > found["young"].created_at_us) is is_last
    if not is_last:
        assert found["old"].created_at_us == plain["old"].created_at_us


def test_a_queued_since_in_the_future_counts_as_the_newest_pod() -> None:
    future = job("future", "2026-11-21T09:00:00Z", queued_since="2999-01-01T00:00:00Z")
    later = job("later", "2026-11-21T10:02:00Z")
    found = workloads(
        pod("future-1", owner="future", creationTimestamp="2026-11-21T10:00:00Z", node="n1", phase="Running"),
        pod("future-2", owner="future", creationTimestamp="2026-11-21T10:01:00Z"),
        pod("later-1", owner="later", creationTimestamp="2026-11-21T10:02:00Z"),
        owners=(by_uid(future, later),),
    )
    minute_us = 60_000_000
    assert found["later"].created_at_us - found["future"].created_at_us == minute_us


@pytest.mark.parametrize(
    ("name", "priority"), [("muster-interactive", 100), ("system-node-critical", 0), ("", 0)]
)
def test_only_a_priority_of_muster_replaces_that_of_the_pods(name: str, priority: int) -> None:
    owner = job("train", "2026-11-21T09:00:00Z", priority=name)
    assert workloads(pod("train-1", owner="train"), owners=(by_uid(owner),))["train"].priority == priority


def test_workloads_of_one_second_are_ordered_by_the_time_of_their_submission() -> None:
    def submitted(name: str, at: str) -> Any:
        return pod(name, annotations={"muster.dev/submitted-at": f"2026-11-21T10:00:{at}Z"})

    found = workloads(
        submitted("second", "05.900000"), submitted("first", "05.100000"), submitted("liar", "01.000000")
    )
    assert found["first"].created_at_us < found["second"].created_at_us
    assert found["liar"].created_at_us == found["first"].created_at_us - 100_000, (
        "not believed beyond a second"
    )


@pytest.mark.parametrize(
    ("labels", "annotations", "interactive", "preemptible"),
    [
        ({}, {}, False, True),
        ({"muster.dev/type": "interactive"}, {}, True, False),
        ({"muster.dev/type": "interactive"}, {"muster.dev/preemptible": "true"}, True, True),
        ({}, {"muster.dev/preemptible": "false"}, False, False),
    ],
)
def test_train_can_be_taken_back_and_interactive_cannot_unless_said(
    labels: dict[str, str], annotations: dict[str, str], interactive: bool, preemptible: bool
) -> None:
    found = workloads(pod("p", labels=labels, annotations=annotations))["p"]
    assert (found.interactive, found.preemptible) == (interactive, preemptible)


@pytest.mark.parametrize(("text", "members"), [("4", 4), ("0", 1), ("-2", 1), ("many", 1)])
def test_the_size_of_a_gang_is_read_off_its_pods(text: str, members: int) -> None:
    assert workloads(pod("p", annotations={"muster.dev/min-member": text}))["p"].min_member == members


def gang(*states: str) -> list[Any]:
    """Return the pods of a gang of three by their states: `runs`, `waits`, or a phase of an ended pod."""
    return [
        pod(
            f"g-{index}",
            owner="g",
            node="" if state == "waits" else "dgx1-1",
            phase={"runs": "Running", "waits": "Pending"}.get(state, state),
            annotations={"muster.dev/min-member": "3"},
        )
        for index, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("states", "is_stale"),
    [
        (("runs", "runs", "runs"), False),
        (("waits", "waits", "waits"), False),
        (("runs", "runs", "waits"), True),
        (("runs", "runs", "Failed"), True),
        (("runs", "runs", "Succeeded"), False),
        (("runs", "runs", "runs", "Failed", "waits"), False),
    ],
)
def test_a_gang_is_stale_while_it_runs_with_fewer_pods_than_it_needs(
    states: tuple[str, ...], is_stale: bool
) -> None:
    reading = read(observed(*gang(*states), now_us=7))
    (found,) = reading.snapshot.workloads
    assert (found.stale_since_us, reading.snapshot.now_us) == (7 if is_stale else 0, 7)


def test_unreadable_objects_are_left_out_and_named() -> None:
    reading = read(
        observed(
            pod("bad", annotations={"muster.dev/gpu-fraction": "2"}),
            pod("good"),
            projects=by_uid(project("team-a", quota=4), project("team-x", quota=0.00001)),
        )
    )
    assert [each.name for each in reading.snapshot.workloads] == ["good"]
    assert list(reading.unreadable_pods) == ["uid-bad"]
    assert [each.name for each in reading.snapshot.projects] == ["team-a"]
    assert list(reading.unreadable_projects) == ["team-x"]


def test_a_project_without_a_weight_weighs_its_quota() -> None:
    weights = {
        each.name: each.over_quota_weight
        for each in read(
            observed(projects=by_uid(project("a", quota=4), project("b", quota=2, overQuotaWeight=0.5)))
        ).snapshot.projects
    }
    assert weights == {"a": 4000, "b": 500}


@pytest.mark.parametrize(("text", "mib"), [("32768", 32768), ("", 0), ("32Gi", 0)])
def test_a_node_says_the_memory_of_its_gpus_in_a_label(text: str, mib: int) -> None:
    labelled = node("n", labels={"nvidia.com/gpu.memory": text})
    (found,) = read(observed(nodes=by_uid(labelled))).snapshot.nodes
    assert found.gpu_memory_mib == mib


def test_a_project_may_bound_processors_memory_and_how_soon_its_jobs_give_way() -> None:
    spec = {
        "gpu": {"quota": 4},
        "cpu": {"quota": 64, "limit": "80500m", "overQuotaWeight": 3},
        "memory": {"limit": "1Gi"},
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "1h30s",
    }
    bounded = decoded(Project, metadata={"name": "bounded", "uid": "b"}, spec=spec)
    free, found = read(observed(projects=by_uid(project("a", quota=4), bounded))).snapshot.projects
    assert (found.quota_cpu_milli, found.limit_cpu_milli, found.cpu_over_quota_weight) == (64000, 80500, 3)
    assert (found.quota_memory_bytes, found.limit_memory_bytes) == (None, 1 << 30)
    assert (found.preempt_min_runtime_seconds, found.reclaim_min_runtime_seconds) == (600, 3630)
    assert (free.quota_cpu_milli, free.limit_memory_bytes, free.cpu_over_quota_weight) == (None, None, 1)
    assert (free.preempt_min_runtime_seconds, free.reclaim_min_runtime_seconds) == (None, None)


@pytest.mark.parametrize(
    "spec", [{"cpu": {"quota": "many"}}, {"memory": {"limit": "4Q"}}, {"reclaimMinRuntime": "soon"}]
)
def test_a_project_whose_bounds_cannot_be_read_is_named(spec: dict[str, Any]) -> None:
    odd = decoded(Project, metadata={"name": "odd", "uid": "o"}, spec={"gpu": {"quota": 1}, **spec})
    reading = read(observed(projects=by_uid(odd)))
    assert (reading.snapshot.projects, list(reading.unreadable_projects)) == ((), ["odd"])


@pytest.mark.parametrize(
    ("changes", "schedulable"), [({}, True), ({"ready": False}, False), ({"unschedulable": True}, False)]
)
def test_a_node_takes_work_only_when_it_is_ready_and_not_cordoned(
    changes: dict[str, Any], schedulable: bool
) -> None:
    (found,) = read(observed(nodes=by_uid(node("n", **changes)))).snapshot.nodes
    assert found.schedulable is schedulable
