"""The types of dynamic resource allocation: published devices, claims with requests, and allocations.

Quantities are exact integers of billionths (`nano`). Slices and devices compare by identity: a slice that was read
again is a different slice, and cached results about its devices are dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.labels import LabelRequirement

MAX_RESULTS: Final = 32
"""Maximum number of devices of a claim."""

MAX_USERS: Final = 256
"""Maximum number of pods for which one claim can be reserved, as in the API server."""

DeviceId = tuple[str, str, str]
"""The names of driver, pool and device."""

PoolId = tuple[str, str]
"""The names of driver and pool."""

Amounts = tuple[tuple[str, int], ...]
"""Names with quantities in billionths."""


@dataclass(frozen=True, slots=True)
class Features:
    """The enabled feature gates of allocation; the defaults are those of Kubernetes 1.36."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    list_attributes: bool = False


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements on the labels and the fields of a node; all must match."""

    expressions: tuple[LabelRequirement, ...] = ()
    fields: tuple[LabelRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The nodes that can use devices: one node, all nodes, or the nodes that match one of the terms."""

    node_name: str | None = None
    all_nodes: bool = False
    terms: tuple[NodeTerm, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no field is set that muster understands."""
        return not self.node_name and not self.all_nodes and self.terms is None


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a device. `kind` is int, bool, string, version (as text), or empty for an unknown kind."""

    kind: str
    values: tuple[int | bool | str, ...] = ()
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The amounts of a capacity that a request can have: a range with steps, or a list of values."""

    default_nano: int | None = None
    min_nano: int | None = None
    max_nano: int | None = None
    step_nano: int | None = None
    has_range: bool = False
    values_nano: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that a device has, and the policy for requests of it."""

    value_nano: int
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CounterSet:
    """A counter set of a pool, or the amounts that a device consumes of it."""

    name: str
    counters: Amounts


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint that keeps claims from a device unless they tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """A toleration of a request. It has all fields of the claim's toleration, because it is copied into the result."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of a slice. `counters` are the amounts that the device consumes of its pool's counter sets."""

    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    taints: tuple[DeviceTaint, ...] = ()
    counters: tuple[CounterSet, ...] = ()
    shareable: bool = False
    nodes: NodeChoice = NodeChoice()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ResourceSlice:
    """A part of a pool. `per_device_nodes` is None if the slice does not set the field of this name."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 1
    nodes: NodeChoice = NodeChoice()
    per_device_nodes: bool | None = None
    counter_sets: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()

    @property
    def pool_id(self) -> PoolId:
        """Driver and name of the slice's pool."""
        return self.driver, self.pool


@dataclass(frozen=True, slots=True)
class Configuration:
    """Parameters for a driver, as JSON text. They apply to the named requests, or to all requests if no request is
    named.
    """

    opaque: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass, which requests name. `selectors` are expressions that must all be true for a device."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[Configuration, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One alternative of a request. `name` is the name in the result: `request`, or `request/subrequest`.

    `capacity` and `admin_access` are None if the claim does not set them.
    """

    name: str
    parent: str
    class_name: str
    selectors: tuple[str, ...] = ()
    mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Amounts | None = None

    @property
    def is_admin(self) -> bool:
        """Whether the request has admin access: it can get devices that other claims hold."""
        return bool(self.admin_access)


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """A request of a claim, with its alternatives in order of preference; `exactly` is one alternative."""

    name: str
    alternatives: tuple[Request, ...]
    is_prioritized: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint: the devices of the named requests (by default of all) have one common value of the attribute, or
    with `distinct` different values.
    """

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()

    def covers(self, request: Request) -> bool:
        """Return whether the constraint applies to devices of the request."""
        return not self.requests or request.parent in self.requests or request.name in self.requests


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The specification of a claim. Claims of one template have equal specifications."""

    requests: tuple[RequestChoice, ...]
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Configuration, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim, without its status."""

    uid: str
    namespace: str
    name: str
    spec: ClaimSpec

    @property
    def key(self) -> str:
        """The namespace and the name of the claim. Pods refer to a claim by this key."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One device for one request. `share_id` and `consumed` are set if other claims can share the device."""

    request: str
    device_id: DeviceId
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    share_id: str = ""
    consumed: Amounts = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultConfiguration:
    """Parameters that the driver gets with a result, and whether they come from the class or from the claim."""

    from_class: bool
    config: Configuration


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a claim. `nodes` is None if its devices can be used from all nodes."""

    results: tuple[DeviceResult, ...]
    config: tuple[ResultConfiguration, ...] = ()
    nodes: NodeTerm | None = None


@dataclass(frozen=True, slots=True)
class ObservedClaim:
    """A claim in the cluster with its allocation, and the pods (uids) for which it is reserved."""

    claim: Claim
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DynamicResources:
    """All ResourceSlices, DeviceClasses and ResourceClaims. Unchanged ones are the same objects as before."""

    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ObservedClaim, ...] = ()


NO_DYNAMIC_RESOURCES: Final = DynamicResources()


@dataclass(frozen=True, slots=True)
class Allocated:
    """All claims fit together. `alternatives` are the indices of the chosen subrequests."""

    allocations: tuple[Allocation, ...]
    alternatives: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """The node does not have the requested devices."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The claims cannot be allocated for another reason than missing devices. `only_this_node`: other nodes may fit."""

    why: str
    only_this_node: bool = False


@dataclass(frozen=True, slots=True)
class WorkBoundReached:
    """The search ended without a result at its bound. `continues`: the next decision continues the search."""

    continues: bool = False


Answer = Allocated | Unsatisfiable | Failed | WorkBoundReached
