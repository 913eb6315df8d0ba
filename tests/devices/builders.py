"""Short functions that build devices, slices and claims."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.devices.allocator import MAX_WORK, DeviceAllocator
from orchestrator.devices.model import (
    Allocated,
    Answer,
    Attribute,
    Capacity,
    Claim,
    ClaimSpec,
    Constraint,
    CounterSet,
    Device,
    DeviceClass,
    Features,
    NodeChoice,
    Request,
    RequestChoice,
    ResourceSlice,
)
from orchestrator.devices.pools import NodePlace
from orchestrator.devices.quantity import parse_nano

DRIVER = "gpu.example.com"
CLASS = DeviceClass("gpu", (f"device.driver == '{DRIVER}'",))
NODE = NodePlace("node-1", {"rack": "r1"})


def attribute(value: int | bool | str) -> Attribute:
    return Attribute({int: "int", bool: "bool", str: "string"}[type(value)], (value,))


def device(name: str, *, memory: str = "", **changes: Any) -> Device:
    attributes = changes.pop("attributes", {})
    base = Device(
        name,
        attributes={key: attribute(value) for key, value in attributes.items()},
        capacity={"memory": Capacity(parse_nano(memory))} if memory else {},
    )
    return replace(base, **changes)


def resource_slice(*devices: Device, pool: str = "node-1", name: str = "", **changes: Any) -> ResourceSlice:
    base = ResourceSlice(
        name or f"{pool}-slice", DRIVER, pool, nodes=NodeChoice(node_name="node-1"), devices=devices
    )
    return replace(base, **changes)


def counters(set_name: str, **amounts: int) -> CounterSet:
    return CounterSet(set_name, tuple(sorted(amounts.items())))


def exactly(name: str = "gpu", count: int = 1, **changes: Any) -> RequestChoice:
    return RequestChoice(name, (replace(Request(name, name, "gpu", count=count), **changes),))


def first_available(name: str, *alternatives: RequestChoice) -> RequestChoice:
    return RequestChoice(
        name,
        tuple(
            replace(alternative.alternatives[0], name=f"{name}/{alternative.name}", parent=name)
            for alternative in alternatives
        ),
        is_prioritized=True,
    )


def claim(*requests: RequestChoice, name: str = "claim", constraints: Sequence[Constraint] = ()) -> Claim:
    return Claim(f"uid-{name}", "team-a", name, ClaimSpec(requests, tuple(constraints)))


def allocator(
    *slices: ResourceSlice, features: Features | None = None, classes: Mapping[str, DeviceClass] | None = None
) -> DeviceAllocator:
    built = DeviceAllocator(features)
    built.observe(slices, classes or {"gpu": CLASS})
    return built


def allocate(
    devices: DeviceAllocator, *claims: Claim, place: NodePlace = NODE, max_work: int = MAX_WORK
) -> Answer:
    return devices.allocate(place, devices.group(claims), max_work)


def names(answer: Answer) -> list[list[str]]:
    """Return the names of the devices of each claim."""
    assert isinstance(answer, Allocated), answer
    return [[result.device_id[2] for result in allocation.results] for allocation in answer.allocations]


def take(devices: DeviceAllocator, *claims: Claim) -> Allocated:
    answer = allocate(devices, *claims)
    assert isinstance(answer, Allocated), answer
    for allocation in answer.allocations:
        devices.ledger.take(allocation)
    return answer
