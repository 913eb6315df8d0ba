"""Covers `orchestrator.observe.resource_claims`: objects of every API version are read, and invalid objects are
refused.
"""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster import device_objects as wire
from orchestrator.devices.model import Attribute, Capacity, DeviceResult, DeviceToleration, NodeChoice
from orchestrator.devices.quantity import parse_nano
from orchestrator.errors import MusterError
from orchestrator.observe.resource_claims import (
    UnreadableDevices,
    allocation_object,
    decode,
    read_allocation,
    read_claim,
    read_class,
    read_slice,
)

REQUEST = {
    "deviceClassName": "gpu.nvidia.com",
    "allocationMode": "ExactCount",
    "count": 2,
    "selectors": [{"cel": {"expression": "true"}}],
    "tolerations": [{"key": "xid", "operator": "Exists", "tolerationSeconds": 30}],
    "capacity": {"requests": {"memory": "16Gi"}},
}
DEVICE = {
    "attributes": {
        "uuid": {"string": "GPU-1"},
        "index": {"int": 0},
        "ecc": {"bool": False},
        "v": {"version": "1.2.3"},
    },
    "capacity": {"memory": {"value": "32Gi"}},
    "taints": [{"key": "xid", "value": "48", "effect": "NoSchedule"}],
    "allowMultipleAllocations": True,
}
ALLOCATION = {
    "devices": {
        "results": [
            {
                "request": "gpu",
                "driver": "gpu.nvidia.com",
                "pool": "node-1",
                "device": "gpu-0",
                "shareID": "34589e3b-0000-4000-8000-000000000000",
                "consumedCapacity": {"memory": "16Gi"},
                "tolerations": [{"key": "xid", "operator": "Exists"}],
            }
        ],
        "config": [
            {
                "source": "FromClaim",
                "requests": ["gpu"],
                "opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}},
            }
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
        ]
    },
}


def claim_object(request: dict[str, Any], **fields: Any) -> str:
    return json.dumps(
        {
            "metadata": {"name": "claim", "namespace": "team-a", "uid": "u"},
            "spec": {"devices": {"requests": [request], **fields}},
        }
    )


def slice_object(device: dict[str, Any], **fields: Any) -> str:
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 1},
        "devices": [device],
        **fields,
    }
    return json.dumps({"metadata": {"name": "slice"}, "spec": spec})


def test_a_claim_is_the_same_in_every_version_of_the_api() -> None:
    new = read_claim(decode(wire.ResourceClaim, claim_object({"name": "gpu", "exactly": REQUEST})))
    old = read_claim(decode(wire.ResourceClaim, claim_object({"name": "gpu", **REQUEST})))
    assert new == old
    (request,) = new.spec.requests[0].alternatives
    assert (request.name, request.count, request.selectors) == ("gpu", 2, ("true",))
    assert request.capacity == (("memory", parse_nano("16Gi")),)
    assert request.tolerations == (DeviceToleration("xid", "Exists", seconds=30),)


def test_a_slice_is_the_same_in_every_version_of_the_api() -> None:
    for device in ({"name": "gpu-0", **DEVICE}, {"name": "gpu-0", "basic": DEVICE}):
        published = read_slice(decode(wire.ResourceSlice, slice_object(device)))
        (read,) = published.devices
        assert (published.pool_id, published.generation) == (("gpu.nvidia.com", "node-1"), 3)
        assert published.nodes == NodeChoice(node_name="node-1")
        assert read.attributes["ecc"] == Attribute("bool", (False,))
        assert read.capacity == {"memory": Capacity(parse_nano("32Gi"))}
        assert read.shareable


def test_an_allocation_is_read_back_as_it_was_written() -> None:
    claim = decode(wire.ResourceClaim, json.dumps({"status": {"allocation": ALLOCATION}}))
    allocation = read_allocation(claim)
    assert allocation is not None
    assert allocation_object(allocation) == ALLOCATION
    (result,) = allocation.results
    assert isinstance(result, DeviceResult)
    assert result.device_id == ("gpu.nvidia.com", "node-1", "gpu-0")


def test_a_claim_without_devices_holds_nothing() -> None:
    assert read_allocation(decode(wire.ResourceClaim, "{}")) is None


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (claim_object({"name": "gpu"}), r"spec\.devices\.requests\[0\]: neither exactly"),
        (
            claim_object({"name": "gpu", "exactly": REQUEST | {"allocationMode": "Some"}}),
            r"\[0\]\.allocationMode",
        ),
        (claim_object({"name": "gpu", "exactly": REQUEST | {"count": -1}}), r"\[0\]\.count"),
        (claim_object({"name": "gpu", "exactly": REQUEST | {"count": "two"}}), r"exactly\.count"),
        (claim_object({"name": "gpu", "exactly": REQUEST | {"selectors": [{}]}}), r"\[0\]\.selectors\[0\]"),
        (
            claim_object(
                {"name": "gpu", "exactly": REQUEST | {"capacity": {"requests": {"memory": "much"}}}}
            ),
            r"capacity\.requests\[memory\]: 'much' is not a quantity",
        ),
        (claim_object({"name": "gpu", "exactly": REQUEST}, constraints=[{}]), r"constraints\[0\]"),
        (
            claim_object({"name": "gpu", "firstAvailable": [{"name": "a"}]}),
            r"firstAvailable\[0\]\.deviceClassName",
        ),
        (
            claim_object({"name": "gpu", "firstAvailable": [REQUEST | {"name": "a"}] * 65}),
            "at most 64 are read",
        ),
    ],
)
def test_a_claim_that_cannot_be_read_names_the_field(data: str, field: str) -> None:
    with pytest.raises(UnreadableDevices, match=field):
        read_claim(decode(wire.ResourceClaim, data))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (
            slice_object({"name": "gpu-0", "capacity": {"memory": {"value": "x"}}}),
            r"capacity\[memory\]\.value",
        ),
        (slice_object({"name": 3}), r"spec\.devices\[0\]\.name"),
        (slice_object({"name": "gpu-0"}, devices=[{"name": "gpu"}] * 1025), "at most 1024 are read"),
        (slice_object({"name": "gpu-0"}, pool="node-1"), r"spec\.pool"),
        ("{", "ResourceSlice"),
    ],
)
def test_a_slice_that_cannot_be_read_names_the_field(data: str, field: str) -> None:
    with pytest.raises(UnreadableDevices, match=field):
        read_slice(decode(wire.ResourceSlice, data))


def test_a_class_that_cannot_be_read_names_the_field() -> None:
    with pytest.raises(UnreadableDevices, match=r"spec\.selectors\[0\]"):
        read_class(decode(wire.DeviceClass, '{"spec": {"selectors": [{"future": {}}]}}'))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["1Gi", "gpu", "All"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "devices",
                    "requests",
                    "exactly",
                    "name",
                    "capacity",
                    "value",
                    "driver",
                    "pool",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_message_is_read_or_refused_with_an_error_of_ours(document: object) -> None:
    data = json.dumps(document)
    for kind, read in (
        (wire.ResourceSlice, read_slice),
        (wire.DeviceClass, read_class),
        (wire.ResourceClaim, read_claim),
        (wire.ResourceClaim, read_allocation),
    ):
        with suppress(MusterError):
            read(decode(kind, data))  # type: ignore[arg-type]
