"""The vocabulary of claims: published devices, requests, and allocations.

Quantities are exact integers of billionths (`nano`). Objects of drivers compare by identity: a slice that was read
again is another one, and remembered results about its devices are dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.labels import LabelRequirement

MAX_RESULTS: Final = 32
"""Maximum number of devices of a claim."""

MAX_USERS: Final = 256
"""Pods for which one claim can be reserved: the API server takes no more."""

DeviceId = tuple[str, str, str]
"""Driver, pool and device."""

PoolId = tuple[str, str]
"""Driver and pool."""

Amounts = tuple[tuple[str, int], ...]
"""Names with their quantities in billionths."""


@dataclass(frozen=True, slots=True)
class Features:
    """The enabled features of the allocation; the defaults are those of Kubernetes 1.36."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    list_attributes: bool = False


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements on the labels and on the fields of a node; all must match."""

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
        """Return whether it has no field that muster understands."""
        return not self.node_name and not self.all_nodes and self.terms is None


@dataclass(frozen=True, slots=True)
class Attribute:
    """`kind` is int, bool, string or version, or empty for one that is not understood. Versions are text."""

    kind: str
    values: tuple[int | bool | str, ...] = ()
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity may be asked for: within a range in steps, or one of some values."""

    default_nano: int | None = None
    min_nano: int | None = None
    max_nano: int | None = None
    step_nano: int | None = None
    has_range: bool = False
    values_nano: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much of something a device has."""

    value_nano: int
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Amounts that devices of a pool share."""

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
    """A request's acceptance of taints, as the claim has it: it is copied into the result."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of a slice. `counters` are the amounts that it takes of the counter sets of its pool."""

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
    """A part of a pool. `per_device_nodes` is None where the slice does not say whether each device has its nodes."""

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
        """The pool it is a part of."""
        return self.driver, self.pool


@dataclass(frozen=True, slots=True)
class Configuration:
    """Parameters for a driver, as JSON text; for some requests, or for all if none is named."""

    opaque: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """The target of requests. `selectors` are expressions that must all be true."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[Configuration, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One way to satisfy a request. `name` is that of the result: `request`, or `request/subrequest`.

    `capacity` and `admin_access` are None where the claim does not say anything about them.
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
        """Whether it also gets devices that other claims hold."""
        return bool(self.admin_access)


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """An entry of a claim: alternatives, the first possible one counts. `exactly` has one."""

    name: str
    alternatives: tuple[Request, ...]
    is_prioritized: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """All devices of the requests (of all, if none is named) share an attribute's value, or no two of them do."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()

    def covers(self, request: Request) -> bool:
        """Whether it holds for devices of the request."""
        return not self.requests or request.parent in self.requests or request.name in self.requests


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The specification of a claim. Claims of one template have equal ones."""

    requests: tuple[RequestChoice, ...]
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Configuration, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that waits for its devices."""

    uid: str
    namespace: str
    name: str
    spec: ClaimSpec

    @property
    def key(self) -> str:
        """Its namespace and name, to which pods refer."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One device for one request. `share_id` and `consumed` are set for devices that others may share."""

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
    """The allocation of a claim. `nodes` is None if its devices can be used from anywhere."""

    results: tuple[DeviceResult, ...]
    config: tuple[ResultConfiguration, ...] = ()
    nodes: NodeTerm | None = None


@dataclass(frozen=True, slots=True)
class ObservedClaim:
    """A claim in the cluster: its allocation, and the pods (uids) that it is reserved for."""

    claim: Claim
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DynamicResources:
    """All published devices and requests of claims. An unchanged object is the same as before."""

    slices: tuple[ResourceSlice, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    claims: tuple[ObservedClaim, ...] = ()


NO_DYNAMIC_RESOURCES: Final = DynamicResources()


@dataclass(frozen=True, slots=True)
class Allocated:
    """All claims can be had together. `alternatives` are the indices of the subrequests that were chosen."""

    allocations: tuple[Allocation, ...]
    alternatives: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """The node does not have the requested devices."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The claims cannot be allocated, although devices exist; other nodes are possible if it is `only_this_node`."""

    why: str
    only_this_node: bool = False


@dataclass(frozen=True, slots=True)
class WorkBoundReached:
    """The search was given up: there may be an answer. `continues`: the next decision continues the search."""

    continues: bool = False


Answer = Allocated | Unsatisfiable | Failed | WorkBoundReached
