"""Times the allocator of devices: claims of one GPU each until every GPU of a cluster is held, and one claim more.

Then the planner's whole decision on a pod for each of the claims.

The slices are what NVIDIA's driver publishes for a node of 8 GPUs, with a generation for each node.
"""

import gc
import json
import resource
import time
from collections.abc import Callable, Iterator
from typing import Final

from musterbench.dra_objects import CLASS, claim_of_one, slice_of
from musterbench.result import Result
from orchestrator.cluster import device_objects as wire
from orchestrator.observe.published_gpus import gpus_by_node
from orchestrator.observe.resource_claims import decode, read_claim, read_class, read_slice
from orchestrator.planner import Planner, model
from orchestrator.planner.devices.allocator import ClaimGroup, DeviceAllocator
from orchestrator.planner.devices.model import (
    Allocated,
    Allocation,
    Claim,
    DeviceClass,
    DynamicResources,
    ObservedClaim,
    ResourceSlice,
)
from orchestrator.planner.devices.pools import NodePlace

_REPEATS: Final = 9
_ANYWHERE: Final = model.Constraints()


def run(nodes: int, gpus: int, *, progress: Callable[[str], None]) -> Iterator[Result]:
    """Allocate as many claims as there are GPUs, then one claim more for a GPU that was released; and decide."""
    gc.collect()
    started = time.perf_counter()
    allocator = DeviceAllocator()
    slices = [
        read_slice(decode(wire.ResourceSlice, json.dumps(slice_of(_node_name(node), gpus))))
        for node in range(nodes)
    ]
    device_class = read_class(decode(wire.DeviceClass, json.dumps(CLASS)))
    allocator.observe(slices, {device_class.name: device_class})
    reading = time.perf_counter() - started
    places = [
        NodePlace(_node_name(node), {"kubernetes.io/hostname": _node_name(node)}) for node in range(nodes)
    ]
    claims = [read_claim(decode(wire.ResourceClaim, _claim(number))) for number in range(nodes * gpus + 1)]
    started, used = time.perf_counter(), time.process_time()
    held = [_place(allocator, places, claim) for claim in claims[:-1]]
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    problem = _wrong(held)
    yield _report(
        progress,
        Result(
            "claims of one GPU each",
            nodes,
            nodes * gpus,
            len(held),
            seconds,
            _rss_bytes(),
            problem,
            {"processor_ms": processor * 1000, "read_slices_ms": reading * 1000},
        ),
    )
    if problem is None:
        yield _report(progress, _one_more(allocator, places, claims[-1], held, gpus))
    yield _report(progress, _decision(slices, device_class, claims[:-1], gpus))


def _decision(
    slices: list[ResourceSlice], device_class: DeviceClass, claims: list[Claim], gpus: int
) -> Result:
    """The planner's whole decision on a pod for each claim."""
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
    details = {"processor_ms": processor * 1000, "again_ms": again * 1000}
    return Result(
        "a whole decision on them",
        len(nodes),
        len(claims),
        len(given),
        seconds,
        _rss_bytes(),
        problem,
        details,
    )


def _workload(claim: Claim, age: int) -> model.Workload:
    request = model.Request(gpu_count=1, claim_specs=(claim.spec,))
    pod = model.Pod(claim.name, claim.name, request, _ANYWHERE, claims=(claim.key,))
    return model.Workload(
        claim.name, claim.name, "team", 50, preemptible=True, created_at_us=age, pods=(pod,)
    )


def _one_more(
    allocator: DeviceAllocator,
    places: list[NodePlace],
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
        placed = _place(allocator, places, claim)
        times.append(time.perf_counter() - started)
        allocator.ledger.rollback(mark)
        if placed is None or placed.results[0].device_id != released.results[0].device_id:
            problem = "not the GPU that was released"
    return Result(
        "one claim more",
        len(places),
        len(places) * gpus,
        1,
        sorted(times)[len(times) // 2],
        _rss_bytes(),
        problem,
        {"slowest_ms": max(times) * 1000},
    )


def _place(allocator: DeviceAllocator, places: list[NodePlace], claim: Claim) -> Allocation | None:
    """Take the devices for the claim on the first node that has them; the allocation, None if no node has."""
    group: ClaimGroup = allocator.group((claim,))
    for place in allocator.worth_asking(places, group):
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


def _rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _report(progress: Callable[[str], None], result: Result) -> Result:
    progress(f"{result.case}, {result.nodes} nodes: {result.seconds * 1000:.1f} ms")
    return result


def _node_name(node: int) -> str:
    return f"dgx1-{node:05d}"


def _claim(number: int) -> str:
    claim = claim_of_one(f"claim-{number}")
    claim["metadata"] |= {"namespace": "muster-team-a", "uid": f"uid-{number}"}
    return json.dumps(claim)
