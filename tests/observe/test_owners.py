"""The workload of each pod, its name, and how many of its pods must run together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import Object, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.observe.owners import KindState, Reading
from orchestrator.observe.reader import Reader, read
from orchestrator.observe.snapshot import Observed
from orchestrator.planner.gangs import give_up_chunks, has_gang, start_chunks
from orchestrator.planner.model import PodState, SubGroup, Workload
from tests.observe.bringing import controller, metadata_of, reference, replicated_job
from tests.observe.objects import by_uid, namespace, node, pod, project

JOBSET = {"replicatedJobs": [replicated_job("driver"), replicated_job("workers", 1, 2)]}


def owned(name: str, kind: str, owner: str, *, group: str | None = None, **fields: Any) -> Pod:
    return pod(name, ownerReferences=[reference(kind, owner, group)], **fields)


def of_job(name: str, owner: str, replicated: str, **fields: Any) -> Pod:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": replicated}
    return owned(name, "Job", owner, labels=labels, **fields)


def workloads(pods: Sequence[Pod], *owners: Object) -> dict[str, Workload]:
    observed = Observed(
        nodes=by_uid(node("dgx1-1")),
        pods=by_uid(*pods),
        namespaces=by_uid(namespace("muster-team-a", "team-a")),
        projects=by_uid(project("team-a", quota="4")),
        owners=(by_uid(*owners),),
    )
    return {each.name: each for each in read(observed).snapshot.workloads}


def sizes(found: dict[str, Workload]) -> dict[str, tuple[int, int]]:
    return {name: (len(each.pods), each.min_member) for name, each in found.items()}


RAY = {"workerGroupSpecs": [{"groupName": "gpu", "replicas": 4, "minReplicas": 1}]}


@pytest.mark.parametrize(
    ("pods", "owners", "expected"),
    [
        pytest.param([pod("bare")], [], {"bare": (1, 1)}, id="bare pod"),
        pytest.param(
            [owned("j-1", "Job", "j"), owned("j-2", "Job", "j")],
            [metadata_of("Job", "j")],
            {"j": (2, 1)},
            id="Job",
        ),
        pytest.param([owned("j-1", "Job", "j")], [], {"j": (1, 1)}, id="Job that cannot be read"),
        pytest.param(
            [owned("c-1-x", "Job", "c-1"), owned("c-2-x", "Job", "c-2")],
            [metadata_of("Job", f"c-{n}", owner=reference("CronJob", "c")) for n in (1, 2)],
            {"c-1": (1, 1), "c-2": (1, 1)},
            id="CronJob",
        ),
        pytest.param(
            [owned("c-1-x", "Job", "c-1"), owned("c-2-x", "Job", "c-2")],
            [
                *(metadata_of("Job", f"c-{n}", owner=reference("CronJob", "c")) for n in (1, 2)),
                metadata_of("CronJob", "c"),
            ],
            {"c-1": (1, 1), "c-2": (1, 1)},
            id="CronJob that can be read",
        ),
        pytest.param(
            [owned("d-1-x", "ReplicaSet", "d-1"), owned("d-2-x", "ReplicaSet", "d-2")],
            [metadata_of("ReplicaSet", f"d-{n}", owner=reference("Deployment", "d")) for n in (1, 2)],
            {"d": (2, 1)},
            id="Deployment in the middle of an update",
        ),
        pytest.param(
            [owned("s-0", "StatefulSet", "s")],
            [metadata_of("StatefulSet", "s")],
            {"s": (1, 1)},
            id="StatefulSet",
        ),
        pytest.param(
            [
                owned("m-launcher-x", "Job", "m-launcher"),
                *(owned(f"m-worker-{n}", "MPIJob", "m") for n in (0, 1)),
            ],
            [
                metadata_of("Job", "m-launcher", owner=reference("MPIJob", "m")),
                controller("MPIJob", "m", {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}}}),
            ],
            {"m": (3, 3)},
            id="MPIJob",
        ),
        pytest.param(
            [owned(f"p-worker-{n}", "PyTorchJob", "p") for n in (0, 1)],
            [controller("PyTorchJob", "p", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}})],
            {"p": (2, 2)},
            id="PyTorchJob",
        ),
        pytest.param(
            [of_job("t-init-0-x", "t-init-0", "init"), of_job("t-node-0-x", "t-node-0", "node")],
            [
                *(metadata_of("Job", f"t-{n}-0", owner=reference("JobSet", "t")) for n in ("init", "node")),
                controller("JobSet", "t", JOBSET, owner=reference("TrainJob", "train")),
                metadata_of("TrainJob", "train"),
            ],
            {"train": (2, 1)},
            id="TrainJob",
        ),
        pytest.param(
            [owned("rs-a", "RayCluster", "rs-a"), owned("rs-b", "RayCluster", "rs-b")],
            [controller("RayCluster", f"rs-{n}", RAY, owner=reference("RayService", "rs")) for n in "ab"],
            {"rs-a": (1, 1), "rs-b": (1, 1)},
            id="RayService during an upgrade",
        ),
        pytest.param(
            [owned("f-1", "Foo", "f", group="example.org"), owned("f-2", "Foo", "f", group="example.org")],
            [],
            {"f": (2, 1)},
            id="unknown kind",
        ),
        pytest.param(
            [owned("f-1-x", "Job", "f-1"), owned("f-2-x", "Job", "f-2")],
            [metadata_of("Job", f"f-{n}", owner=reference("Foo", "f", "example.org")) for n in (1, 2)],
            {"f-1": (1, 1), "f-2": (1, 1)},
            id="unknown kind above Jobs that cannot be read",
        ),
        pytest.param(
            [owned("f-1-x", "Job", "f-1"), owned("f-2-x", "Job", "f-2")],
            [
                *(metadata_of("Job", f"f-{n}", owner=reference("Foo", "f", "example.org")) for n in (1, 2)),
                metadata_of("Foo", "f"),
            ],
            {"f": (2, 1)},
            id="unknown kind above Jobs that can be read",
        ),
        pytest.param(
            [
                owned("driver", "Spark", "s", group="example.org"),
                pod("exec-1", ownerReferences=[{**reference("Pod", "driver"), "uid": "uid-driver"}]),
            ],
            [metadata_of("Spark", "s")],
            {"s": (2, 1)},
            id="pods that a pod owns",
        ),
    ],
)
def test_pods_are_one_workload_by_their_topmost_owner(
    pods: list[Pod], owners: list[Object], expected: dict[str, tuple[int, int]]
) -> None:
    assert sizes(workloads(pods, *owners)) == expected


def test_a_jobset_is_one_workload_and_starts_whole() -> None:
    owners = [
        *(metadata_of("Job", f"js-{n}", owner=reference("JobSet", "js")) for n in ("driver-0", "workers-0")),
        controller("JobSet", "js", JOBSET),
    ]
    driver, first, second = (
        of_job("js-driver-0-x", "js-driver-0", "driver"),
        of_job("js-workers-0-a", "js-workers-0", "workers"),
        of_job("js-workers-0-b", "js-workers-0", "workers"),
    )
    found = workloads([driver, first, second], *owners)["js"]
    assert found.groups == SubGroup("", None, (SubGroup("driver", 1), SubGroup("workers", 2)))
    assert [len(chunk) for chunk in start_chunks(found)] == [3]
    assert start_chunks(workloads([driver, first], *owners)["js"]) == []


def test_a_replicated_job_that_waits_for_another_holds_it_up_not_and_starts_whole() -> None:
    jobs = [
        replicated_job("init"),
        replicated_job("node", 1, 2, dependsOn=[{"name": "init", "status": "Complete"}]),
    ]
    owners = [
        *(metadata_of("Job", f"t-{n}", owner=reference("JobSet", "t")) for n in ("init", "node")),
        controller("JobSet", "t", {"replicatedJobs": jobs}),
    ]
    init = of_job("t-init-x", "t-init", "init")
    assert [len(chunk) for chunk in start_chunks(workloads([init], *owners)["t"])] == [1]
    done = of_job("t-init-x", "t-init", "init", phase="Succeeded", node="dgx1-1")
    nodes = [of_job(f"t-node-{n}", "t-node", "node") for n in "ab"]
    assert start_chunks(workloads([done, nodes[0]], *owners)["t"]) == []
    assert [len(chunk) for chunk in start_chunks(workloads([done, *nodes], *owners)["t"])] == [2]
    running = [of_job(f"t-node-{n}", "t-node", "node", node="dgx1-1") for n in "ab"]
    assert has_gang(workloads([done, *running], *owners)["t"])


def test_a_jobset_that_starts_in_order_is_given_up_whole() -> None:
    jobs = [replicated_job("driver"), replicated_job("workers", 1, 2)]
    owners = [
        *(metadata_of("Job", f"o-{n}", owner=reference("JobSet", "o")) for n in ("driver", "workers")),
        controller(
            "JobSet", "o", {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs}
        ),
    ]
    driver = of_job("o-driver-x", "o-driver", "driver", node="dgx1-1")
    waiting = [of_job(f"o-workers-{n}", "o-workers", "workers") for n in "ab"]
    starting = workloads([driver, *waiting], *owners)["o"]
    assert [len(chunk) for chunk in start_chunks(starting)] == [2]
    assert has_gang(starting), "the driver runs before its workers can"
    running = [of_job(f"o-workers-{n}", "o-workers", "workers", node="dgx1-1") for n in "ab"]
    assert [len(chunk) for chunk in give_up_chunks(workloads([driver, *running], *owners)["o"])] == [3]


def test_each_group_of_a_leader_worker_set_is_a_gang_of_its_own() -> None:
    def member(name: str, group: str, worker: str, kind: str, owner: str) -> Pod:
        prefix = "leaderworkerset.sigs.k8s.io"
        return owned(
            name, kind, owner, labels={f"{prefix}/group-index": group, f"{prefix}/worker-index": worker}
        )

    pods = [
        member("l-0", "0", "0", "StatefulSet", "l"),
        member("l-1", "1", "0", "StatefulSet", "l"),
        member("l-1-1", "1", "1", "StatefulSet", "l-1"),
    ]
    leader = {**reference("Pod", "l-1"), "uid": "uid-l-1"}
    owners = [
        metadata_of("StatefulSet", "l", owner=reference("LeaderWorkerSet", "l")),
        metadata_of("StatefulSet", "l-1", owner=leader),
        controller("LeaderWorkerSet", "l", {"replicas": 2, "leaderWorkerTemplate": {"size": 2}}),
    ]
    found = workloads(pods, *owners)
    assert sizes(found) == {"l-0": (1, 2), "l-1": (2, 2)}
    assert [len(chunk) for chunk in start_chunks(found["l-1"])] == [2]


def test_a_ray_job_is_its_cluster_and_the_job_that_submits_to_it() -> None:
    def of_cluster(name: str, group: str) -> Pod:
        return owned(name, "RayCluster", "r-c", labels={"ray.io/group": group})

    owners = [
        controller("RayCluster", "r-c", RAY, owner=reference("RayJob", "r")),
        metadata_of("RayJob", "r"),
        metadata_of("Job", "r", owner=reference("RayJob", "r")),
    ]
    head, worker = of_cluster("r-head", "headgroup"), of_cluster("r-worker", "gpu")
    assert start_chunks(workloads([head], *owners)["r"]) == []
    late = owned("r-submitter", "Job", "r", creationTimestamp="2026-11-21T10:30:00Z")
    found = workloads([head, worker, late], *owners)["r"]
    assert [sorted(pod.name for pod in chunk) for chunk in start_chunks(found)] == [
        ["r-head", "r-worker"],
        ["r-submitter"],
    ]


@pytest.mark.parametrize(
    ("on_pod", "on_owner", "members"),
    [
        ({}, {}, 2),
        ({"muster.dev/min-member": "1"}, {"muster.dev/min-member": "9"}, 1),
        ({}, {"muster.dev/min-member": "3"}, 3),
    ],
)
def test_an_annotation_counts_more_than_the_kind(
    on_pod: dict[str, str], on_owner: dict[str, str], members: int
) -> None:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}
    pods = [owned(f"p-worker-{n}", "PyTorchJob", "p", annotations=on_pod) for n in (0, 1)]
    found = workloads(pods, controller("PyTorchJob", "p", spec, annotations=on_owner))["p"]
    assert (found.min_member, found.groups) == (members, None)


def test_bare_pods_that_ask_for_a_gang_under_one_name_are_one_workload() -> None:
    fields: dict[str, Any] = {
        "labels": {"muster.dev/workload": "rawjob"},
        "annotations": {"muster.dev/min-member": "2"},
    }
    found = workloads([pod("rawjob-9lx9h", **fields), pod("rawjob-b2x7q", **fields)])
    assert sizes(found) == {"rawjob": (2, 2)}


def test_an_owner_in_another_namespace_is_none() -> None:
    strange = metadata_of("Job", "theirs", namespace="muster-team-b")
    found = workloads([owned("a", "Job", "theirs"), owned("b", "Job", "theirs")], strange)
    assert sizes(found) == {"a": (1, 1), "b": (1, 1)}


@pytest.mark.parametrize("is_read", [True, False])
def test_a_jobset_in_another_namespace_takes_no_job_in(is_read: bool) -> None:
    theirs = controller("JobSet", "js", JOBSET, namespace="muster-team-b")
    ours = metadata_of("Job", "mine", owner=reference("JobSet", "js"))
    other = metadata_of("Job", "js-driver-0", owner=reference("JobSet", "js"), namespace="muster-team-b")
    pods = [
        of_job("mine-x", "mine", "driver"),
        of_job("js-driver-0-x", "js-driver-0", "driver", namespace="muster-team-b"),
    ]
    observed = Observed(
        nodes={},
        pods=by_uid(*pods),
        namespaces=by_uid(namespace("muster-team-a", "team-a"), namespace("muster-team-b", "team-b")),
        projects=by_uid(project("team-a"), project("team-b")),
        owners=(by_uid(ours, other, *([theirs] if is_read else [])),),
    )
    found = {each.project: (each.name, len(each.pods)) for each in read(observed).snapshot.workloads}
    assert found == {"team-a": ("mine" if is_read else "js", 1), "team-b": ("js", 1)}


def test_owners_that_own_each_other_are_followed_once() -> None:
    first = metadata_of("Foo", "a", owner=reference("Foo", "b", "example.org"))
    second = metadata_of("Foo", "b", owner=reference("Foo", "a", "example.org"))
    assert len(workloads([owned("p", "Foo", "a", group="example.org")], first, second)) == 1


class Feed:
    """A reader with a namespace, a project and a node, which is told of objects one after the other."""

    def __init__(self) -> None:
        self.reader = Reader()
        for each in (namespace("muster-team-a", "team-a"), project("team-a", quota="4"), node("dgx1-1")):
            self.reader.note(Change("added", each))

    def __call__(self, *objects: Any) -> None:
        for each in objects:
            self.reader.note(Change("added", each))

    def names(self, now_us: int = 1) -> dict[str, int]:
        return {each.name: len(each.pods) for each in self.reader.read(now_us=now_us).snapshot.workloads}


KINDS = [("batch", "Job"), ("jobset.x-k8s.io", "JobSet")]


def states(reading: Reading, kinds: Iterable[tuple[str, str]] = KINDS) -> list[KindState]:
    return [KindState(kind, reading) for kind in kinds]


def test_a_pod_without_a_node_waits_until_its_owners_have_been_read() -> None:
    feed = Feed()
    feed(*states(Reading.CURRENT, KINDS[:1]), of_job("js-driver-0-x", "js-driver-0", "driver"))
    assert feed.names() == {}
    feed(metadata_of("Job", "js-driver-0", owner=reference("JobSet", "js")))
    feed(*states(Reading.PENDING, KINDS[1:]))
    assert feed.names() == {}
    feed(*states(Reading.CURRENT, KINDS[1:]))
    assert feed.names() == {}
    assert feed.reader.read(now_us=2).unreadable_pods == {}
    assert "JobSet js" in feed.reader.read(now_us=6_000_002).unreadable_pods["uid-js-driver-0-x"]
    feed(controller("JobSet", "js", JOBSET))
    assert feed.names() == {"js": 1}
    assert feed.reader.read(now_us=7_000_000).unreadable_pods == {}


def test_a_kind_that_cannot_be_read_holds_nothing_up() -> None:
    feed = Feed()
    feed(*states(Reading.CURRENT, KINDS[:1]), *states(Reading.PENDING, KINDS[1:]))
    feed(of_job("js-driver-0-x", "js-driver-0", "driver"))
    feed(metadata_of("Job", "js-driver-0", owner=reference("JobSet", "js")))
    assert feed.names() == {}
    feed(*states(Reading.UNREADABLE, KINDS[1:]))
    assert feed.names() == {"js": 1}


def test_a_pod_that_has_a_node_counts_for_any_knowledge_of_its_owners() -> None:
    feed = Feed()
    feed(*states(Reading.CURRENT), of_job("js-driver-0-x", "js-driver-0", "driver", node="dgx1-1"))
    (found,) = feed.reader.read().snapshot.workloads
    assert [each.state for each in found.pods] == [PodState.ALLOCATED]


def test_a_gang_follows_its_controller_and_status_changes_nothing() -> None:
    feed = Feed()
    feed(*(owned(f"p-worker-{n}", "PyTorchJob", "p") for n in (0, 1)))
    feed(controller("PyTorchJob", "p", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}))
    (before,) = feed.reader.read().snapshot.workloads
    feed(
        controller(
            "PyTorchJob", "p", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}, resourceVersion="2"
        )
    )
    (same,) = feed.reader.read().snapshot.workloads
    assert same is before
    feed(
        controller(
            "PyTorchJob", "p", {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}, resourceVersion="3"
        )
    )
    (after,) = feed.reader.read().snapshot.workloads
    assert (before.min_member, after.min_member) == (2, 1)


@pytest.mark.parametrize(
    ("name", "value"), [("priority", "muster-inference"), ("queued-since", "2026-11-21T19:00:00Z")]
)
def test_a_changed_annotation_of_a_job_is_read_without_a_change_of_its_pods(name: str, value: str) -> None:
    feed = Feed()
    feed(owned("p-1", "Job", "p"), metadata_of("Job", "p"))
    (before,) = feed.reader.read().snapshot.workloads
    feed(metadata_of("Job", "p", annotations={f"muster.dev/{name}": value}, resourceVersion="2"))
    (after,) = feed.reader.read().snapshot.workloads
    assert (after.priority, after.created_at_us) != (before.priority, before.created_at_us)


JOBS = [
    metadata_of("Job", name, owner=owner)
    for name in ("js-a", "js-b")
    for owner in (None, reference("JobSet", "js"), reference("Foo", "f", "example.org"))
]
TOPS = [
    controller("JobSet", "js", {"replicatedJobs": [replicated_job("a", 1, count)]}, owner=owner)
    for count in (1, 2)
    for owner in (None, reference("TrainJob", "t"))
]
UNDER = [
    of_job(f"{job}-{suffix}", job, "a", node=at, phase=phase)
    for job in ("js-a", "js-b")
    for suffix in "xy"
    for at, phase in (("", "Pending"), ("dgx1-1", "Running"), ("dgx1-1", "Succeeded"))
]
CHANGES = st.tuples(st.sampled_from([*JOBS, *TOPS, *UNDER, metadata_of("Foo", "f")]), st.booleans())


@given(st.lists(CHANGES, max_size=25))
def test_owners_and_pods_in_any_order_come_to_the_same(changes: list[tuple[Any, bool]]) -> None:
    feed = Feed()
    present: dict[str, Any] = {}
    for each, is_there in changes:
        uid = each.metadata.uid
        before = present.pop(uid, None)
        if is_there:
            present[uid] = each
            feed.reader.note(Change("modified" if before else "added", each, before))
        elif before is not None:
            feed.reader.note(Change("deleted", before, before))
        feed.reader.read_ahead(1, now_us=1)
    pods = [each for each in present.values() if isinstance(each, Pod)]
    owners = [each for each in present.values() if not isinstance(each, Pod)]
    scratch = {each.id: each for each in workloads(pods, *owners).values()}
    readings = {
        each.id: replace(each, stale_since_us=0) for each in feed.reader.read(now_us=1).snapshot.workloads
    }
    assert readings == {uid: replace(each, stale_since_us=0) for uid, each in scratch.items()}
