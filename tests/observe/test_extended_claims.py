"""Covers `orchestrator.observe.extended_claims`: the ResourceClaim for a pod's GPUs, and the mapping in the status."""

from typing import Any

import msgspec
import pytest

from orchestrator.cluster import device_objects as wire
from orchestrator.cluster.objects import Pod
from orchestrator.devices.model import Allocation, DeviceResult, NodeTerm
from orchestrator.labels import LabelRequirement
from orchestrator.observe.claim_reader import ClaimReader, PodClaims
from orchestrator.observe.extended_claims import claim_name, claim_object, request_mappings
from orchestrator.observe.request import pod_request
from orchestrator.observe.resource_claims import allocation_object, read_allocation
from orchestrator.observe.unreadable import Boundary
from orchestrator.planner.model import Request
from tests.observe.test_published_gpus import published

PART = {"limits": {"muster.dev/gpu-part": "1"}}
HALF = {"muster.dev/gpu-fraction": "0.5"}


def pod(*resources: dict[str, Any], annotations: dict[str, str], node: str = "", **status: object) -> Pod:
    containers = [{"name": f"c{index}", "resources": listed} for index, listed in enumerate(resources)]
    metadata = {"name": "job", "namespace": "team", "uid": "uid-job", "annotations": annotations}
    spec = {"schedulerName": "muster", "nodeName": node, "containers": containers}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def reader() -> ClaimReader:
    """Return a reader that knows eight shared GPUs and their device class."""
    known = ClaimReader(Boundary())
    known.note(msgspec.convert(published(), wire.ResourceSlice), is_there=True)
    gpu_class = {
        "metadata": {"name": "gpu.nvidia.com", "uid": "class"},
        "spec": {"extendedResourceName": "nvidia.com/gpu"},
    }
    known.note(msgspec.convert(gpu_class, wire.DeviceClass), is_there=True)
    return known


def read(known: ClaimReader, bound: Pod) -> PodClaims | None:
    return known.read_pod(bound, pod_request(bound), bound.spec.node_name or None)


def test_a_part_is_claimed_for_the_containers_that_ask_to_see_it() -> None:
    half = pod(PART, {}, PART, annotations=HALF | {"muster.dev/gpu-fraction-devices": "2"})
    claims = read(reader(), half)
    assert claims is not None
    assert claims.extended is not None
    assert claims.request == Request(gpu_portion_milli=500, shared_devices=2)
    body = claim_object(half, claims.extended, "resource.k8s.io/v1")
    assert body["spec"]["devices"]["requests"] == [
        {
            "name": "gpu-part",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "allocationMode": "ExactCount",
                "count": 2,
                "selectors": [{"cel": {"expression": "device.allowMultipleAllocations"}}],
            },
        }
    ]
    mapping = {"resourceName": "muster.dev/gpu-part", "requestName": "gpu-part"}
    assert request_mappings(half) == [{"containerName": name, **mapping} for name in ("c0", "c2")]


@pytest.mark.parametrize(
    ("resources", "annotations"),
    [({}, HALF), (PART, {}), (PART | {"limits": {"muster.dev/gpu-part": "0"}}, HALF)],
    ids=["no container is to see it", "nothing is asked for", "none of it"],
)
def test_no_part_is_claimed(resources: dict[str, Any], annotations: dict[str, str]) -> None:
    assert read(reader(), pod(resources, annotations=annotations)) is None


def part_of_gpu_3(name: str, gib: int, **metadata: Any) -> wire.ResourceClaim:
    """Return a ResourceClaim that holds `gib` GiB of GPU 3."""
    result = DeviceResult(
        "gpu-part",
        ("gpu.nvidia.com", "dgx1", "gpu-3"),
        share_id=f"00000000-0000-8000-8000-{gib:012}",
        consumed=(("memory", (gib << 30) * 10**9),),
    )
    on_node = NodeTerm(fields=(LabelRequirement("metadata.name", "In", ("dgx1",)),))
    request = {"name": "gpu-part", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    claim = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", **metadata},
        "spec": {"devices": {"requests": [request]}},
        "status": {
            "allocation": allocation_object(Allocation((result,), nodes=on_node)),
            "reservedFor": [{"resource": "pods", "name": "job", "uid": "uid-job"}],
        },
    }
    return msgspec.convert(claim, wire.ResourceClaim)


def test_a_gpu_of_which_others_took_too_much_has_another_holder() -> None:
    known = reader()
    mine, others = part_of_gpu_3("mine", 16), [part_of_gpu_3("one", 12), part_of_gpu_3("two", 5)]
    allocation = read_allocation(mine)
    assert allocation is not None
    for claim, other in zip((mine, *others), (None, None, "team/one"), strict=True):
        known.note(claim, is_there=True)
        assert known.cache.other_holder("team/mine", allocation) == other
    known.note(others[0], is_there=False)
    assert known.cache.other_holder("team/mine", allocation) is None


def test_a_part_counts_the_same_before_and_after_its_claim_was_made() -> None:
    known, waiting = reader(), pod(PART, annotations=HALF)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "job", "uid": "uid-job", "controller": True}
    name = claim_name(waiting)
    known.note(part_of_gpu_3(name, 16, ownerReferences=[owner]), is_there=True)
    mappings = request_mappings(waiting)
    shown = {"resourceClaimName": name, "requestMappings": mappings}
    bound = pod(PART, annotations=HALF, node="dgx1", extendedResourceClaimStatus=shown)
    for case, devices in ((waiting, ()), (bound, (3,))):
        known.note_pod(case, is_there=True)
        claims = read(known, case)
        assert claims is not None
        assert claims.request == Request(gpu_portion_milli=500)
        assert claims.devices == devices
        assert claims.keys == (f"team/{name}",)
        assert claims.extended is None


def user_of_gpu(uid: str, *, runs: bool, leaves: bool = False) -> Pod:
    metadata = {"name": uid, "namespace": "team", "uid": uid, "creationTimestamp": "2026-11-26T10:00:00Z"}
    if leaves:
        metadata["deletionTimestamp"] = "2026-11-26T11:00:00Z"
    spec = {
        "schedulerName": "muster",
        "nodeName": "dgx1" if runs else "",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    }
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def whole_gpu_3() -> wire.ResourceClaim:
    held = part_of_gpu_3("gpu", 16)
    on_node = NodeTerm(fields=(LabelRequirement("metadata.name", "In", ("dgx1",)),))
    whole = Allocation((DeviceResult("gpu", ("gpu.nvidia.com", "dgx1", "gpu-3")),), nodes=on_node)
    status = {"allocation": allocation_object(whole), "reservedFor": [{"resource": "pods", "uid": "first"}]}
    return msgspec.structs.replace(held, status=msgspec.convert(status, type(held.status)))


def read_users(*users: Pod) -> list[PodClaims]:
    """Return the claims of each user of the claim for GPU 3, as they are read."""
    known = reader()
    known.note(whole_gpu_3(), is_there=True)
    for user in users:
        known.note_pod(user, is_there=True)
    return [claims for user in users if (claims := read(known, user)) is not None]


def test_a_claim_does_not_count_with_its_pending_pod_while_its_user_runs() -> None:
    holds, waits = read_users(user_of_gpu("first", runs=True), user_of_gpu("second", runs=False))
    assert (holds.request.gpu_count, waits.request.gpu_count) == (1, 0)
    assert waits.terms, "it can only run where the claim is"


def test_a_claim_counts_with_its_pending_pod_as_well_when_its_user_terminates() -> None:
    """The terminating pod holds its GPU until it has ended, and the pending pod needs another GPU, on any node."""
    leaving, follower = user_of_gpu("first", runs=True, leaves=True), user_of_gpu("second", runs=False)
    holds, waits = read_users(leaving, follower)
    assert (holds.request.gpu_count, waits.request.gpu_count) == (1, 1)
    assert not waits.terms
    assert len(waits.request.claim_specs) == 1


def test_a_claim_that_others_keep_using_does_not_count_with_a_terminating_pod() -> None:
    users = user_of_gpu("first", runs=True, leaves=True), user_of_gpu("second", runs=True)
    assert [claims.request.gpu_count for claims in read_users(*users)] == [0, 1], "no GPU comes free"


@pytest.mark.parametrize(
    ("workloads", "counts"),
    [([{"first", "second"}] * 2, [1, 0]), ([{"first"}, {"second"}], [1, 1])],
    ids=["of one workload", "of two workloads"],
)
def test_a_claim_without_a_running_user_counts_once_for_each_workload(
    workloads: list[set[str]], counts: list[int]
) -> None:
    """The first workload to start needs a GPU, and exceeds its quota if the claim counts for another workload alone."""
    known = reader()
    known.note(msgspec.structs.replace(whole_gpu_3(), status=wire.ResourceClaimStatus()), is_there=True)
    users = [user_of_gpu("first", runs=False), user_of_gpu("second", runs=False)]
    for user in users:
        known.note_pod(user, is_there=True)
    claims = [
        known.read_pod(user, pod_request(user), None, workload)
        for user, workload in zip(users, workloads, strict=True)
    ]
    assert [listed.request.gpu_count for listed in claims if listed is not None] == counts
