"""Slices, classes and claims of dynamic resource allocation as muster reads them; see `objects`.

There is one set of structs for `resource.k8s.io` v1, v1beta2 and v1beta1. In v1beta1, the fields of a device are under
`basic`, and the fields of `exactly` are in the request itself. `orchestrator.observe.resource_claims` handles the
difference.
"""

from __future__ import annotations

from typing import Any

import msgspec

from orchestrator.cluster.pods import NodeSelector  # noqa: TC001  (msgspec evaluates the annotation)
from orchestrator.cluster.wire import Condition, Metadata, Wire

QuantityText = str | int


class CelSelector(Wire, frozen=True):
    """An expression that must be true for a device."""

    expression: str


class DeviceSelector(Wire, frozen=True):
    """`cel` is the only known kind of selector; None if the selector is of another kind."""

    cel: CelSelector | None = None


class DeviceConfiguration(Wire, frozen=True):
    """Parameters for a driver, for the named requests or for all.

    `source` is set only in an allocation: FromClass or FromClaim.
    """

    requests: list[str] = []
    opaque: Any = None
    source: str = ""


class DeviceToleration(Wire, frozen=True):
    """A taint that a request tolerates."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class CapacityRequirements(Wire, frozen=True):
    """The amounts that a request needs of the capacities of a device."""

    requests: dict[str, QuantityText] = {}


class ExactRequest(Wire, frozen=True):
    """A request for devices; a subrequest has a name as well."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(ExactRequest, frozen=True):
    """One request. Only in v1beta1 it has the fields of an exact request itself."""

    exactly: ExactRequest | None = None
    first_available: list[ExactRequest] = []


class DeviceConstraint(Wire, frozen=True):
    """A condition on the devices of some or all requests. An attribute has the same value on all devices, or a
    different value on each.
    """

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Wire, frozen=True):
    """The requests of a ResourceClaim, with constraints on their devices and parameters for drivers."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceConfiguration] = []


class ResourceClaimSpec(Wire, frozen=True):
    """The specification of a claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestResult(Wire, frozen=True):
    """One device that a claim holds."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: dict[str, QuantityText] = {}


class DeviceAllocation(Wire, frozen=True):
    """The devices that a ResourceClaim holds, and the parameters for their drivers."""

    results: list[DeviceRequestResult] = []
    config: list[DeviceConfiguration] = []


class AllocationResult(Wire, frozen=True):
    """The devices of a claim, and the nodes from which it can be used."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumer(Wire, frozen=True):
    """An object for which a ResourceClaim is reserved, such as a pod."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Wire, frozen=True):
    """A driver's report about a device of a claim."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(default="", name="shareID")
    conditions: list[Condition] = []


class ResourceClaimStatus(Wire, frozen=True):
    """The allocation of a claim, and its users."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumer] = []
    devices: list[AllocatedDeviceStatus] = []


class ClaimMetadata(Metadata, frozen=True):
    """`finalizers` keep a claim from being deleted."""

    finalizers: list[str] = []


class ResourceClaim(Wire, frozen=True):
    """A ResourceClaim: a request for devices, and their allocation."""

    metadata: ClaimMetadata = ClaimMetadata()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassSpec(Wire, frozen=True):
    """The rule that selects the devices of a class."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True):
    """A class of devices."""

    metadata: Metadata = Metadata()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Wire, frozen=True):
    """The value of an attribute: exactly one field is set."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: list[int] | None = msgspec.field(default=None, name="ints")
    bool_values: list[bool] | None = msgspec.field(default=None, name="bools")
    string_values: list[str] | None = msgspec.field(default=None, name="strings")
    version_values: list[str] | None = msgspec.field(default=None, name="versions")


class CapacityRange(Wire, frozen=True):
    """The minimum, maximum and step of a request for a capacity."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityPolicy(Wire, frozen=True):
    """The amounts of a capacity that a request can ask for."""

    default: QuantityText | None = None
    valid_values: list[QuantityText] = []
    valid_range: CapacityRange | None = None


class DeviceCapacity(Wire, frozen=True):
    """The amount of one capacity of a device."""

    value: QuantityText
    request_policy: CapacityPolicy | None = None


class Counter(Wire, frozen=True):
    """An amount that devices share."""

    value: QuantityText


class CounterSet(Wire, frozen=True):
    """Amounts that devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class CounterConsumption(Wire, frozen=True):
    """The amount that a device takes of a counter set."""

    counter_set: str
    counters: dict[str, Counter] = {}


class DeviceTaint(Wire, frozen=True):
    """A taint that keeps claims from a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class BasicDevice(Wire, frozen=True):
    """A device without its name."""

    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[CounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class SliceDevice(BasicDevice, frozen=True):
    """One device; `basic` has its fields in v1beta1."""

    name: str = ""
    basic: BasicDevice | None = None


class ResourcePool(Wire, frozen=True):
    """The pool of a slice."""

    name: str
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True):
    """A slice of the devices of a driver."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[SliceDevice] = []
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] = []


class ResourceSlice(Wire, frozen=True):
    """The published devices of a driver."""

    spec: ResourceSliceSpec
    metadata: Metadata = Metadata()
