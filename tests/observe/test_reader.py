"""Snapshots from changes equal snapshots read from scratch, and objects that did not change are kept."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from operator import is_
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from orchestrator.cluster.reflector import Change
from orchestrator.observe.reader import Reader
from orchestrator.observe.snapshot import Reading
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import Snapshot, Workload
from orchestrator.planner.placements import Placement
from tests.observe.assuming import assume
from tests.observe.objects import by_uid, decoded, job, namespace, node, pod, project

MOMENTS = st.sampled_from(["2026-11-21T10:00:00Z", "2026-11-21T10:00:01Z"])
NODES = st.sampled_from(["", "n-0", "n-1"])


class Cluster:
    """Objects that change, a reader that is told of each change, and the time since which each gang is stale."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.assumed: dict[str, Placement] = {}
        self.evicted: frozenset[str] = frozenset()
        self.placeholders: dict[str, Any] = {}
        self.now_us = 0
        self._reader = Reader()
        self._since: dict[str, int] = {}

    def put(self, kind: str, each: Any) -> None:
        mine = self.objects.setdefault(kind, {})
        before = mine.get(each.metadata.uid)
        mine[each.metadata.uid] = each
        self._reader.note(Change("modified" if before else "added", each, before))

    def drop(self, kind: str, uid: str) -> None:
        each = self.objects.get(kind, {}).pop(uid, None)
        if each is not None:
            self._reader.note(Change("deleted", each, each))

    def read(self) -> Reading:
        self.now_us += 1
        self._reader.read_ahead(self.now_us % 3, now_us=self.now_us)
        self._assume(self._reader)
        return self._reader.read(now_us=self.now_us)

    def _assume(self, reader: Reader) -> None:
        assume(reader.pods, bindings=self.assumed, evictions=self.evicted)
        reader.pods.expect(self.placeholders, {})

    def read_from_scratch(self) -> Reading:
        """Return the reading of a new reader, in which each stale gang has kept its age."""
        objects = self.objects
        reader = Reader()
        self._assume(reader)
        for kind in ("namespaces", "projects", "nodes", "classes", "jobs", "pods"):
            feed(reader, *objects.get(kind, {}).values())
        reading = reader.read(now_us=self.now_us)
        stale = {each.id for each in reading.snapshot.workloads if each.stale_since_us}
        self._since = {uid: self._since.get(uid, self.now_us) for uid in stale}
        aged = tuple(_since(each, self._since.get(each.id, 0)) for each in reading.snapshot.workloads)
        return replace(reading, snapshot=replace(reading.snapshot, workloads=aged))


def _since(workload: Workload, since_us: int) -> Workload:
    return replace(workload, stale_since_us=since_us)


@st.composite
def pods(draw: st.DrawFn) -> Any:
    return pod(
        f"p-{draw(st.integers(0, 3))}",
        namespace=draw(st.sampled_from(["ns-0", "ns-1"])),
        gpus=draw(st.integers(0, 2)),
        owner=draw(st.sampled_from(["job-0", "job-0", "job-1", ""])),
        node=draw(NODES),
        phase=draw(st.sampled_from(["Running", "Running", "Pending", "Succeeded", "Failed"])),
        annotations=draw(
            st.sampled_from(
                [
                    {},
                    {"muster.dev/min-member": "2"},
                    {"muster.dev/min-member": "2"},
                    {"muster.dev/min-member": "3", "muster.dev/gpu-devices": "1"},
                    {"muster.dev/gpu-fraction": "0.5"},
                    {"muster.dev/gpu-fraction": "nonsense"},
                ]
            )
        ),
        creationTimestamp=draw(MOMENTS),
        is_admitted=draw(st.booleans()),
        started=draw(st.sampled_from(["", "2026-11-21T10:00:02Z"])),
        deletionTimestamp=draw(st.sampled_from([None, None, None, "2026-11-21T10:00:02Z"])),
        spec={
            "schedulerName": draw(st.sampled_from(["muster", "muster", "muster", "default-scheduler"])),
            "schedulingGates": draw(st.sampled_from([[], [], [], [{"name": "gate"}]])),
        },
    )


def nodes() -> st.SearchStrategy[Any]:
    return st.builds(node, st.sampled_from(["n-0", "n-1"]), st.integers(0, 8), ready=st.booleans())


def namespaces() -> st.SearchStrategy[Any]:
    return st.builds(namespace, st.sampled_from(["ns-0", "ns-1"]), st.sampled_from([None, "a", "b"]))


def projects() -> st.SearchStrategy[Any]:
    return st.builds(project, st.sampled_from(["a", "b"]), quota=st.sampled_from([1, 4, 0.00001]))


def jobs() -> st.SearchStrategy[Any]:
    return st.builds(job, st.sampled_from(["job-0", "job-1"]), MOMENTS)


def device_class(name: str, resource: str | None) -> DeviceClass:
    """Return a device class for pods that ask for the resource without a claim."""
    body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(body, DeviceClass)


def device_classes() -> st.SearchStrategy[Any]:
    resources = st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu", "example.com/nic", None])
    return st.builds(device_class, st.sampled_from(["gpus", "more-gpus"]), resources)


UIDS = st.sampled_from([f"uid-p-{each}" for each in range(4)])
STEPS = st.one_of(
    st.tuples(st.just("pods"), pods()),
    st.tuples(st.just("pods"), pods()),
    st.tuples(st.just("pods"), pods()),
    st.tuples(st.just("nodes"), nodes()),
    st.tuples(st.just("namespaces"), namespaces()),
    st.tuples(st.just("projects"), projects()),
    st.tuples(st.just("jobs"), jobs()),
    st.tuples(st.just("classes"), device_classes()),
    st.tuples(st.just("drop classes"), st.sampled_from(["uid-gpus", "uid-more-gpus"])),
    st.tuples(st.just("drop pods"), UIDS),
    st.tuples(st.just("drop nodes"), st.sampled_from(["uid-n-0", "uid-n-1"])),
    st.tuples(st.just("drop namespaces"), st.sampled_from(["uid-ns-0", "uid-ns-1"])),
    st.tuples(st.just("drop projects"), st.sampled_from(["uid-a", "uid-b"])),
    st.tuples(st.just("drop jobs"), st.sampled_from(["job-0", "job-1"])),
    st.tuples(
        st.just("assume"),
        st.dictionaries(UIDS, st.builds(Placement, st.sampled_from(["n-0", "n-1"]), st.just((0,)))),
    ),
    st.tuples(st.just("evict"), st.frozensets(UIDS)),
    st.tuples(st.just("expect"), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=20, max_size=60), st.integers(1, 3))
def test_a_snapshot_from_changes_equals_one_from_everything(
    steps: list[tuple[str, Any]], changes_between: int
) -> None:
    cluster = Cluster()
    for number, (what, each) in enumerate(steps):
        if what == "assume":
            cluster.assumed = each
        elif what == "evict":
            cluster.evicted = each
        elif what == "expect":
            cluster.placeholders = by_uid(pod("p-new", owner="job-0", gpus=1)) if each else {}
        elif what.startswith("drop "):
            cluster.drop(what.removeprefix("drop "), each)
        else:
            cluster.put(what, each)
        if number % changes_between == 0:
            found, expected = cluster.read(), cluster.read_from_scratch()
            assert found == expected


def feed(reader: Reader, *objects: Any) -> None:
    for each in objects:
        reader.note(Change("added", each))


def gang(*states: str) -> Iterable[Any]:
    """Yield the pods of a gang of three by their states: `runs`, `waits`, or a phase of an ended pod."""
    for index, state in enumerate(states):
        yield pod(
            f"g-{index}",
            owner="g",
            node="" if state == "waits" else "dgx1-1",
            phase={"runs": "Running", "waits": "Pending"}.get(state, state),
            annotations={"muster.dev/min-member": "3"},
        )


def test_a_gang_is_stale_since_it_was_first_seen_so_and_until_it_is_whole() -> None:
    whole, broken = ("runs", "runs", "runs"), ("runs", "runs", "waits")
    failed = ("runs", "runs", "Failed")
    reader = Reader()
    rows = [(whole, 1), (broken, 2), (broken, 3), (failed, 4), (whole, 5), (broken, 6)]
    since = []
    for states, now_us in rows:
        feed(reader, *gang(*states))
        since.append(reader.read(now_us=now_us).snapshot.workloads[0].stale_since_us)
    assert since == [0, 2, 2, 2, 0, 6]


def test_reading_ahead_of_a_decision_does_not_end_that_a_gang_is_stale() -> None:
    reader = Reader()
    feed(reader, *gang("runs", "runs", "waits"))
    assert reader.read(now_us=1).snapshot.workloads[0].stale_since_us == 1
    feed(reader, *gang("runs", "runs", "runs"))
    reader.read_ahead(10, now_us=2)  # reading ahead does not know yet that a pod of the gang is being evicted
    reader.pods.evict("uid-g-2")
    found = reader.read(now_us=2)
    assert found.snapshot.workloads[0].stale_since_us == 1


def around(reader: Reader) -> Snapshot:
    """Feed a small cluster to the reader, and return the first snapshot."""
    feed(reader, node("dgx1-1"), namespace("muster-team-a", "team-a"), project("team-a", quota=4))
    feed(reader, job("g", "2026-11-21T10:00:00Z"), pod("other", owner="o"), *gang("runs", "runs", "waits"))
    return reader.read(now_us=1).snapshot


def test_changes_without_an_effect_on_a_decision_open_no_new_books() -> None:
    reader = Reader()
    state = ClusterState(around(reader))
    # new objects with the same effect: the operator wrote the project's status
    feed(reader, project("team-a", quota=4))
    feed(reader, node("dgx1-1"))  # a heartbeat
    feed(reader, job("g", "2026-11-21T10:00:00Z"))  # a pod of the Job became ready
    feed(reader, *gang("runs", "runs", "waits"))
    before, after = state.snapshot, reader.read(now_us=2).snapshot
    assert state.follows(after)
    assert state.snapshot.now_us == 2
    assert (after.workloads is before.workloads, after.nodes is before.nodes) == (True, True)


def test_a_change_touches_its_own_workload_only() -> None:
    reader = Reader()
    before = around(reader)
    feed(reader, pod("other", owner="o", node="dgx1-1"))
    after = reader.read(now_us=2).snapshot
    assert [each.name for each in after.workloads] == ["g", "o"]
    assert [is_(*pair) for pair in zip(before.workloads, after.workloads, strict=True)] == [True, False]
    assert after.nodes is before.nodes


def test_a_class_for_gpus_that_changes_late_counts_for_pending_pods() -> None:
    reader = Reader()
    feed(reader, node("dgx1-1"), namespace("muster-team-a", "team-a"), project("team-a", quota=4))
    feed(reader, pod("waits", gpus=1, namespace="muster-team-a"))
    gpu_class = device_class("gpus", "nvidia.com/gpu")

    def extended() -> bool:
        (workload,) = reader.read(now_us=1).snapshot.workloads
        return workload.pods[0].extended_claim is not None

    before = extended()
    feed(reader, gpu_class)
    with_class = extended()
    reader.note(Change("deleted", gpu_class, gpu_class))
    assert (before, with_class, extended()) == (False, True, False)


def published_gpus(*devices: str) -> ResourceSlice:
    """Return the slice of n-0 with these GPUs, with the fields of NVIDIA's driver that muster reads."""
    listed = [{"name": name, "attributes": {"type": {"string": "gpu"}}} for name in devices]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n-0", "pool": {"name": "n-0", "generation": 1}}
    return decoded(
        ResourceSlice, metadata={"name": "n-0", "uid": "uid-slice"}, spec={**spec, "devices": listed}
    )


def claim_of(name: str, owner: str | None, *devices: str) -> ResourceClaim:
    """Return a claim that holds these GPUs of n-0 for the pod p. If `owner` is set, it is the uid of the pod that owns
    it.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": "ns-0", "uid": f"uid-{name}"}
    if owner is not None:
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": owner,
            "controller": True,
        }
        metadata["ownerReferences"] = [reference]
    results = [
        {"request": "r", "driver": "gpu.nvidia.com", "pool": "n-0", "device": name} for name in devices
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-0"]}]}
    status = {
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}},
    }
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": len(devices)}}
    return decoded(ResourceClaim, metadata=metadata, spec={"devices": {"requests": [request]}}, status=status)


MADE = claim_of("p-extended-resources-uid-p", "uid-p", "gpu-0", "gpu-1")
NAMED = claim_of("c", None, "gpu-0", "gpu-1")
WITH_CLAIMS = [
    pytest.param(
        pod("p", namespace="ns-0", uid="uid-p", gpus=2), MADE, id="made, and the pod says nothing of it"
    ),
    pytest.param(
        pod(
            "p",
            namespace="ns-0",
            uid="uid-p",
            node="n-0",
            phase="Succeeded",
            spec={"schedulerName": "muster", "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]},
        ),
        NAMED,
        id="named, and the pod has ended",
    ),
]


def held(reader: Reader) -> tuple[object, object]:
    """Return the nodes and workloads of the snapshot. Their devices are compared by identity."""
    snapshot = reader.read().snapshot
    return snapshot.nodes, snapshot.workloads


@pytest.mark.parametrize(("user", "claim"), WITH_CLAIMS)
def test_the_devices_of_a_claim_are_the_same_in_any_order_of_events(user: Any, claim: ResourceClaim) -> None:
    slices = published_gpus("gpu-0", "gpu-1")
    for order in permutations([node("n-0", 0), slices, user, claim]):
        reader, whole = Reader(), Reader()
        for seen in order:
            feed(reader, seen)
            reader.read()
        feed(whole, *order)
        assert held(reader) == held(whole)
        reader.note(Change("deleted", user, user))
        without = Reader()
        feed(without, *(seen for seen in order if seen is not user))
        assert held(reader) == held(without)


def test_gpus_of_a_device_plugin_are_held_beside_a_claim_for_another_device() -> None:
    """A GPU that counted as claimed would be free as soon as its pod is bound, and would be given to a second pod."""
    user = pod(
        "p",
        namespace="ns-0",
        uid="uid-p",
        gpus=1,
        node="n-0",
        phase="Running",
        annotations={"muster.dev/gpu-devices": "1"},
        spec={"schedulerName": "muster", "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]},
    )
    reader = Reader()
    feed(reader, node("n-0", 2), NAMED, user)
    (workload,) = reader.read().snapshot.workloads
    (read,) = workload.pods
    assert (read.claims, read.devices, read.request.gpu_count) == (("ns-0/c",), (1,), 1)


@pytest.mark.parametrize(("owners", "counts"), [(("job", "job"), [1, 0]), (("job", "other"), [1, 1])])
def test_a_claim_that_pods_wait_for_counts_once_for_each_of_their_jobs(
    owners: tuple[str, str], counts: list[int]
) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = decoded(
        ResourceClaim,
        metadata={"name": "c", "namespace": "muster-team-a", "uid": "uid-c"},
        spec={"devices": {"requests": [request]}},
    )
    shared = {"schedulerName": "muster", "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}
    pods = [pod(f"p-{number}", owner=owner, spec=shared) for number, owner in enumerate(owners)]
    reader = Reader()
    feed(reader, node("n-0", 0), published_gpus("gpu-0"), device_class("gpu.nvidia.com", None), claim, *pods)
    read = [listed for workload in reader.read().snapshot.workloads for listed in workload.pods]
    assert [listed.request.gpu_count for listed in sorted(read, key=lambda listed: listed.id)] == counts
