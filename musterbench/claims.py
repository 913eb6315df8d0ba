"""Times the allocator of devices: ResourceClaims of one GPU each until every GPU of a cluster is held, and one claim
more.

Then it times the planner's whole decision on one pod for each claim. Each ResourceSlice has the attributes that
NVIDIA's DRA driver publishes.
"""

import gc
import json
import time
from collections.abc import Iterator
from typing import Any, Final

from musterbench.processes import peak_rss_bytes
from musterbench.result import Result
from orchestrator.cluster import device_objects as wire
from orchestrator.cluster.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from orchestrator.devices.allocator import ClaimGroup, DeviceAllocator
from orchestrator.devices.model import (
    Allocated,
    Allocation,
    Claim,
    DeviceClass,
    DynamicResources,
    ObservedClaim,
    ResourceSlice,
)
from orchestrator.devices.pools import NodePlace
from orchestrator.observe.published_gpus import gpus_by_node
from orchestrator.observe.resource_claims import decode, read_claim, read_class, read_slice
from orchestrator.planner import Planner, model

_REPEATS: Final = 9
_ANYWHERE: Final = model.Constraints()

_DRIVER: Final = "gpu.nvidia.com"
_ATTRIBUTES: Final = f'device.attributes["{_DRIVER}"]'

_CLASS: Final[dict[str, Any]] = {
    "apiVersion": DEVICE_CLASSES.api_version,
    "kind": DEVICE_CLASSES.kind,
    "metadata": {"name": _DRIVER},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{_DRIVER}' && {_ATTRIBUTES}.type == 'gpu'"}}]
    },
}


def run(nodes: int, gpus: int) -> Iterator[Result]:
    """Allocate one ResourceClaim for each GPU. Then release a GPU, allocate one more claim, and decide."""
    gc.collect()
    started = time.perf_counter()
    allocator = DeviceAllocator()
    slices = [
        read_slice(decode(wire.ResourceSlice, json.dumps(_slice_of(_node_name(node), gpus))))
        for node in range(nodes)
    ]
    device_class = read_class(decode(wire.DeviceClass, json.dumps(_CLASS)))
    allocator.observe(slices, {device_class.name: device_class})
    reading = time.perf_counter() - started
    candidates = [
        NodePlace(_node_name(node), {"kubernetes.io/hostname": _node_name(node)}) for node in range(nodes)
    ]
    claims = [read_claim(decode(wire.ResourceClaim, _claim(number))) for number in range(nodes * gpus + 1)]
    started, used = time.perf_counter(), time.process_time()
    held = [_place(allocator, candidates, claim) for claim in claims[:-1]]
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    problem = _wrong(held)
    figures = {"processor_ms": processor * 1000, "read_slices_ms": reading * 1000}
    rss, total = peak_rss_bytes(), nodes * gpus
    yield Result("claims of one GPU each", nodes, total, len(held), seconds, rss, problem, figures)
    if problem is None:
        yield _one_more(allocator, candidates, claims[-1], held, gpus)
    yield _decision(slices, device_class, claims[:-1], gpus)


def _decision(
    slices: list[ResourceSlice], device_class: DeviceClass, claims: list[Claim], gpus: int
) -> Result:
    """Return the time of the planner's whole decision on one pod for each claim."""
    published = gpus_by_node(slices)
    nodes = [
        model.Node(name, gpus, 80_000, 512 << 30, published_gpus=listed.ids)
        for name, listed in published.items()
    ]
    snapshot = model.Snapshot(
        nodes=tuple(nodes),
        projects=(model.Project("team", len(claims) * model.DEVICE_MILLI),),
        workloads=tuple(_workload(claim, age) for age, claim in enumerate(claims)),
        dynamic=DynamicResources(tuple(slices), (device_class,), tuple(map(ObservedClaim, claims))),
    )
    planner = Planner()
    started, used = time.perf_counter(), time.process_time()
    plan = planner.plan(snapshot)
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    started = time.perf_counter()
    planner.plan(snapshot)
    again = time.perf_counter() - started
    given = [grant.allocation for binding in plan.bindings for grant in binding.grants]
    problem = _wrong([*given, *[None] * (len(claims) - len(given))])
    figures = {"processor_ms": processor * 1000, "again_ms": again * 1000}
    rss = peak_rss_bytes()
    return Result(
        "a whole decision on them", len(nodes), len(claims), len(given), seconds, rss, problem, figures
    )


def _workload(claim: Claim, age: int) -> model.Workload:
    request = model.Request(gpu_count=1, claim_specs=(claim.spec,))
    pod = model.Pod(claim.name, claim.name, request, _ANYWHERE, claims=(claim.key,))
    return model.Workload(
        claim.name, claim.name, "team", 50, preemptible=True, created_at_us=age, pods=(pod,)
    )


def _one_more(
    allocator: DeviceAllocator,
    candidates: list[NodePlace],
    claim: Claim,
    held: list[Allocation | None],
    gpus: int,
) -> Result:
    times = []
    problem = None
    for number in range(_REPEATS):
        released = held[(number + 1) * len(held) // (_REPEATS + 1)]
        if released is None:
            continue
        mark = allocator.ledger.checkpoint()
        allocator.ledger.release(released)
        started = time.perf_counter()
        placed = _place(allocator, candidates, claim)
        times.append(time.perf_counter() - started)
        allocator.ledger.rollback(mark)
        if placed is None or placed.results[0].device_id != released.results[0].device_id:
            problem = "not the GPU that was released"
    rss, figures = peak_rss_bytes(), {"slowest_ms": max(times) * 1000}
    nodes, median = len(candidates), sorted(times)[len(times) // 2]
    return Result("one claim more", nodes, nodes * gpus, 1, median, rss, problem, figures)


def _place(allocator: DeviceAllocator, candidates: list[NodePlace], claim: Claim) -> Allocation | None:
    """Allocate the devices of the claim on the first node that has them. Returns None if no node has them."""
    group: ClaimGroup = allocator.group((claim,))
    for place in allocator.worth_asking(candidates, group):
        answer = allocator.allocate(place, group)
        if isinstance(answer, Allocated):
            allocator.ledger.take(answer.allocations[0])
            return answer.allocations[0]
    return None


def _wrong(held: list[Allocation | None]) -> str | None:
    devices = [allocation.results[0].device_id for allocation in held if allocation is not None]
    if len(devices) < len(held):
        return f"{len(held) - len(devices)} claims got nothing"
    return None if len(set(devices)) == len(devices) else "a GPU was given twice"


def _node_name(node: int) -> str:
    return f"dgx1-{node:05d}"


def _claim(number: int) -> str:
    claim = _claim_of_one(f"claim-{number}")
    claim["metadata"] |= {"namespace": "muster-team-a", "uid": f"uid-{number}"}
    return json.dumps(claim)


def _slice_of(node: str, gpus: int) -> dict[str, Any]:
    """Return the ResourceSlice of a node with this number of V100."""
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": f"{node}-{_DRIVER}"},
        "spec": {
            "driver": _DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(node, gpu) for gpu in range(gpus)],
        },
    }


def _claim_of_one(name: str) -> dict[str, Any]:
    """Return a ResourceClaim of one GPU with at least 16 GiB."""
    memory = f'device.capacity["{_DRIVER}"].memory.compareTo(quantity("16Gi")) >= 0'
    exactly = {
        "deviceClassName": _DRIVER,
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": memory}}],
    }
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _device(node: str, gpu: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{gpu}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{node}-{gpu}"},
            "productName": {"string": "Tesla V100-SXM2-32GB"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Volta"},
            "cudaComputeCapability": {"version": "7.0.0"},
            "driverVersion": {"version": "550.163.1"},
            "cudaDriverVersion": {"version": "12.4.0"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{gpu:02x}:00.0"},
        },
        "capacity": {"memory": {"value": "32Gi"}},
    }
