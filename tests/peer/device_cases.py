"""Runs a case of the corpus of Kubernetes' own device allocator against muster's allocator."""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.cluster import device_objects as wire
from orchestrator.devices.allocator import DeviceAllocator
from orchestrator.devices.model import (
    Allocated,
    Allocation,
    Answer,
    DeviceClass,
    DeviceId,
    DeviceResult,
    Features,
    Unsatisfiable,
    WorkBoundReached,
)
from orchestrator.devices.pools import NodePlace
from orchestrator.devices.quantity import parse_nano
from orchestrator.observe.resource_claims import (
    UnreadableDevices,
    allocation_object,
    decode,
    read_claim,
    read_class,
    read_slice,
)

Case = Mapping[str, Any]

_SWITCHES = {
    "adminAccess": "admin_access",
    "prioritizedList": "prioritized_list",
    "partitionableDevices": "partitionable_devices",
    "deviceTaints": "device_taints",
    "deviceBindingAndStatus": "binding_conditions",
    "consumableCapacity": "consumable_capacity",
    "listTypeAttributes": "list_attributes",
}


def features_of(case: Case) -> Features:
    return Features(**{_SWITCHES[name]: is_on for name, is_on in case["features"].items()})


def solve(case: Case) -> Mapping[str, Any]:
    """Return the answer of muster's allocator in the form of the corpus."""
    try:
        answer = answer_to(case)
    except UnreadableDevices as error:
        return {"error": str(error)}
    if isinstance(answer, Allocated):
        return {"allocated": [allocation_object(allocation) for allocation in answer.allocations]}
    if isinstance(answer, Unsatisfiable):
        return {"unsatisfiable": True}
    if isinstance(answer, WorkBoundReached):
        return {"error": "the work bound was reached"}
    return {"error": answer.why}


def answer_to(case: Case) -> Answer:
    allocator = DeviceAllocator(features_of(case))
    slices = [
        read_slice(decode(wire.ResourceSlice, json.dumps(published))) for published in case["slices"] or ()
    ]
    classes: dict[str, DeviceClass] = {}
    for listed in case["classes"]:
        device_class = read_class(decode(wire.DeviceClass, json.dumps(listed)))
        classes[device_class.name] = device_class
    allocator.observe(slices, classes)
    allocator.ledger.take(Allocation(tuple(_results(case["allocated"]))))
    metadata = case["node"]["metadata"]
    place = NodePlace(metadata["name"], metadata.get("labels") or {})
    claims = [read_claim(decode(wire.ResourceClaim, json.dumps(claim))) for claim in case["claims"]]
    return allocator.allocate(place, allocator.group(claims))


def _results(state: Case) -> list[DeviceResult]:
    """Return the results of earlier claims. The corpus has only sums for shared devices: the first share gets the whole
    sum.
    """
    sums: dict[DeviceId, tuple[tuple[str, int], ...]] = {
        (listed["driver"], listed["pool"], listed["device"]): tuple(
            (name, parse_nano(text)) for name, text in listed["consumedCapacity"].items()
        )
        for listed in state["consumedCapacity"]
    }
    results = [DeviceResult("", (driver, pool, device)) for driver, pool, device in state["devices"]]
    for driver, pool, device, share_id in state["sharedIDs"]:
        device_id = (driver, pool, device)
        results.append(DeviceResult("", device_id, share_id=share_id, consumed=sums.pop(device_id, ())))
    results += [
        DeviceResult("", device_id, share_id="other", consumed=consumed)
        for device_id, consumed in sums.items()
    ]
    return results
