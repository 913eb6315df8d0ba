"""The planner's vocabulary: its input (`Snapshot`) and its output (`Plan`).

All quantities are exact integers with their unit in the name. `gpu_milli` counts thousandths of one device.
Times are microseconds since the epoch; the planner compares them and never reads a clock.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter

from orchestrator.devices.model import (
    NO_DYNAMIC_RESOURCES,
    Allocation,
    Claim,
    ClaimSpec,
    DeviceId,
    DynamicResources,
)
from orchestrator.labels import LabelRequirement
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings
from orchestrator.planner.traits import NO_TRAITS, PodTraits

DEVICE_MILLI = 1000
"""One whole GPU, in `gpu_milli`."""

SECOND_US = 1_000_000
"""One second, in the unit of every time of a snapshot."""

UNLIMITED = 1 << 62
"""The value for "no limit" in comparisons of amounts. It is larger than any sum in a cluster."""

Amounts = tuple[int, int, int]
"""`gpu_milli`, `cpu_milli`, `memory_bytes`: the units of quotas."""

Scalars = tuple[tuple[str, int], ...]
"""Amounts of other resources, each above 0, sorted by name: hugepages, ephemeral storage, extended resources.

The unit is that of Kubernetes: bytes, or a number of devices. No quota counts them.
"""

GPU_MODEL_LABEL = "nvidia.com/gpu.product"
"""The node label that names the model of its GPUs."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's refusal of pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's acceptance of taints; an empty key with operator `Exists` accepts every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Constraints:
    """The nodes on which a pod may run. Equal constraints of several pods are evaluated only once for each node.

    `node_terms` is a disjunction of conjunctions, as in a pod's required node affinity; empty means anywhere.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[tuple[LabelRequirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


class _Amounts:
    """The amounts of a request that count in quotas, computed once: a decision uses them dozens of times."""

    __slots__ = ("amounts", "gpu_milli")

    amounts: Amounts
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Request(_Amounts):
    """The request of one pod: whole devices, or the same fraction of `shared_devices` devices.

    The fraction is `gpu_portion_milli` (1 to 999 thousandths), or `gpu_memory_mib` of each device's memory. The same
    `gpu_memory_mib` is a larger portion of a GPU with less memory.

    `claim_specs` are the requests of the pod's ResourceClaims that have no devices
    yet. The other fields include the GPUs of these claims, and the allocator chooses the devices.

    `scalars` are the other resources that the pod requests, such as hugepages.
    """

    gpu_count: int = 0
    gpu_portion_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_memory_mib: int = 0
    shared_devices: int = 1
    claim_specs: tuple[ClaimSpec, ...] = ()
    scalars: Scalars = ()

    def __post_init__(self) -> None:
        gpu_milli = self.gpu_count * DEVICE_MILLI
        if self.gpu_portion_milli:
            gpu_milli += self.gpu_portion_milli * self.shared_devices
        object.__setattr__(self, "gpu_milli", gpu_milli)
        object.__setattr__(self, "amounts", (gpu_milli, self.cpu_milli, self.memory_bytes))

    def __reduce__(self) -> tuple[type["Request"], tuple[object, ...]]:
        # the amounts are not dataclass fields, so a copy computes them again
        return Request, tuple(getattr(self, own.name) for own in fields(Request))

    @property
    def is_shared(self) -> bool:
        """Whether the pod requests fractions of devices."""
        return bool(self.gpu_portion_milli or self.gpu_memory_mib)

    def portion_milli(self, device_memory_mib: int) -> int:
        """Return the requested portion of a device with this memory, in thousandths, rounded up.

        If the memory is unknown (0), a request by memory is for the whole device.
        """
        if not self.gpu_memory_mib:
            return self.gpu_portion_milli or DEVICE_MILLI
        return (
            -(-DEVICE_MILLI * self.gpu_memory_mib // device_memory_mib) if device_memory_mib else DEVICE_MILLI
        )

    def gpu_milli_on(self, device_memory_mib: int) -> int:
        """Return the `gpu_milli` on GPUs with this memory each; whole GPUs if the memory is unknown (0)."""
        if not self.gpu_memory_mib:
            return self.gpu_milli
        return self.shared_devices * self.portion_milli(device_memory_mib)

    def part_mib(self, device_memory_mib: int) -> int:
        """Return the requested memory on a device with this memory, rounded down.

        Rounding down keeps the sum of all fractions of a device within its memory.
        """
        return self.gpu_memory_mib or device_memory_mib * self.gpu_portion_milli // DEVICE_MILLI


class PodState(enum.Enum):
    """The state of a pod in a snapshot; finished pods are not in a snapshot."""

    PENDING = "pending"
    ALLOCATED = "allocated"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `node` and `devices` (indices of GPUs on the node) are set unless the pod is pending.

    - `nominated_node`, `nominated_devices`: for a pending pod, the placement that an earlier decision reserved until
      the pod is bound. For a terminating pod, the placement that is reserved for its replacement pod.
    - `replaced`: for a terminating pod, whether its replacement pod exists.
    - `stuck`: the pod has not terminated in time, so its devices are given to no other pod.
    - `max_runtime_seconds`: the declared maximum runtime. `ends_by_us`: the time at which the maximum runtime of a
      running pod ends; 0 if the pod declares none.
    - `claims`: the keys of its ResourceClaims.
    - `extended_claim`: the ResourceClaim to create for the pod's GPUs if its node publishes GPUs in ResourceSlices.
    - `never_started`: the pod is bound, and none of its containers has run yet. `bound_at_us` is the time of the
      binding, 0 if unknown.
    - `start_problem`: the reason that the kubelet gives for a container that has not started. `cannot_start`: waiting
      does not help.
    - `traits`: the pod's labels, and its constraints on other pods.
    """

    id: str
    name: str
    request: Request
    constraints: Constraints = Constraints()
    state: PodState = PodState.PENDING
    node: str | None = None
    devices: tuple[int, ...] = ()
    sub_group: str = ""
    priority: int = 0
    replaced: bool = False
    stuck: bool = False
    max_runtime_seconds: int | None = None
    ends_by_us: int = 0
    nominated_node: str | None = None
    nominated_devices: tuple[int, ...] = ()
    claims: tuple[str, ...] = ()
    extended_claim: Claim | None = None
    never_started: bool = False
    bound_at_us: int = 0
    start_problem: str = ""
    cannot_start: bool = False
    traits: PodTraits = NO_TRAITS

    def in_state(self, state: PodState) -> "Pod":
        """Return the same pod in another state."""
        values = [*_pod_values(self)]
        values[_POD_STATE] = state
        return Pod(*values)

    def placed(self, state: PodState, node: str | None, devices: tuple[int, ...]) -> "Pod":
        """Return the same pod in another state, on another node and other devices."""
        values = [*_pod_values(self)]
        values[_POD_STATE], values[_POD_NODE], values[_POD_DEVICES] = state, node, devices
        return Pod(*values)


# Copying these fields is several times as fast as dataclasses.replace, and a decision may change thousands of
# pods.
_POD_FIELDS = tuple(field.name for field in fields(Pod))
_pod_values = attrgetter(*_POD_FIELDS)
_POD_STATE, _POD_NODE, _POD_DEVICES = map(_POD_FIELDS.index, ("state", "node", "devices"))


@dataclass(frozen=True, slots=True)
class TopologyRule:
    """Pods that belong close together: `levels` are node labels from the widest to the closest.

    All pods run in one domain of the `required` level; `preferred` is tried first, and ignored if the pods do not fit.
    """

    levels: tuple[str, ...]
    required: str | None = None
    preferred: str | None = None


@dataclass(frozen=True, slots=True)
class SubGroup:
    """One group in a workload's tree of gangs. A leaf holds the pods whose `sub_group` is its name.

    `minimum`: for a leaf, the number of pods that it needs (None: one). For an inner group, the number of children that
    it needs (None: all).
    """

    name: str
    minimum: int | None = None
    children: tuple["SubGroup", ...] = ()
    topology: TopologyRule | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods that are scheduled together: at least `min_member` of them run, or none does.

    - `created_at_us`: its age in the queue, which survives an eviction.
    - `started_at_us`: the start of its oldest running pod, 0 if none runs.
    - `groups`: refines `min_member` to a tree.
    - `stale_since_us`: the time at which the gang fell below its minimum, 0 while it is complete.
    - `evicts_from_us`: before this time, no pod is evicted for the workload; it can only use free GPUs.
    - `waiting_since_us`: the time since which its pods are pending; 0 means since its creation.
    """

    id: str
    name: str
    project: str
    priority: int
    preemptible: bool
    created_at_us: int
    pods: tuple[Pod, ...]
    min_member: int = 1
    interactive: bool = False
    started_at_us: int = 0
    groups: SubGroup | None = None
    topology: TopologyRule | None = None
    stale_since_us: int = 0
    stale_grace_seconds: int | None = None
    evicts_from_us: int = 0
    waiting_since_us: int = 0

    def with_pods(self, pods: tuple[Pod, ...]) -> "Workload":
        """Return the same workload with other pods."""
        values = [*_workload_values(self)]
        values[_WORKLOAD_PODS] = pods
        return Workload(*values)


_WORKLOAD_FIELDS = tuple(field.name for field in fields(Workload))
_workload_values = attrgetter(*_WORKLOAD_FIELDS)
_WORKLOAD_PODS = _WORKLOAD_FIELDS.index("pods")


@dataclass(frozen=True, slots=True)
class GpuModelBounds:
    """A project's quota and limit for one GPU model, beside those for all GPUs. None: no separate quota or limit."""

    model: str
    quota_gpu_milli: int | None = None
    limit_gpu_milli: int | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """A team's entitlement. None as a quota or limit means unlimited. `over_quota_weight` is the weight for GPUs beyond
    all quotas.

    A project with children is a department: its workloads are those of its children. CPU and memory are unlimited
    unless the project has a quota or limit for them.

    For `reclaim_min_runtime_seconds` after its start, a workload is not evicted for other projects. For
    `preempt_min_runtime_seconds` after its start, it is not evicted for its own project. If one of these times is None,
    the department's value applies. `moves_non_preemptible` allows the migration of non-preemptible workloads from
    unhealthy hardware.
    """

    name: str
    quota_gpu_milli: int | None
    limit_gpu_milli: int | None = None
    over_quota_weight: int = 1
    priority: int = 0
    parent: str | None = None
    created_at_us: int = 0
    train_node_types: tuple[str, ...] = ()
    interactive_node_types: tuple[str, ...] = ()
    quota_cpu_milli: int | None = None
    limit_cpu_milli: int | None = None
    cpu_over_quota_weight: int = 1
    quota_memory_bytes: int | None = None
    limit_memory_bytes: int | None = None
    memory_over_quota_weight: int = 1
    reclaim_min_runtime_seconds: int | None = None
    preempt_min_runtime_seconds: int | None = None
    moves_non_preemptible: bool = False
    gpu_models: tuple[GpuModelBounds, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `schedulable` is false if the node is cordoned or not ready; its running pods still count.

    - `node_type`: the group of nodes to which projects can be restricted.
    - `foreign`: the amounts that pods of other schedulers use. `foreign_devices` has the known indices of their GPUs.
      GPUs with unknown indices are assumed to be the last GPUs of the node.
    - `unhealthy`: the problem of the whole node ("": none). `unhealthy_since_us`: the time since which the node is not
      ready. If an administrator reported the problem, the time is 0, and no grace period applies.
    - `unhealthy_gpus`: indices of GPUs that must not be used. `lost_gpus`: the number of further missing GPUs, whose
      indices are unknown.
    - `host_fault`: the fault that the agent of the node reports, "" without one. `host_fault_since_us`: the time since
      which it reports a fault. At most a tenth of the nodes are avoided for this reason.
    - `published_gpus`: the GPUs by index, if a DRA driver publishes them in ResourceSlices. Pods get these GPUs only by
      ResourceClaims.
    - `scalars`: the amounts of other resources; a resource that is not listed counts as 0.
    - `foreign_traits`: the traits of pods of other schedulers on it.
    """

    name: str
    gpu_count: int
    cpu_milli: int
    memory_bytes: int
    pod_slots: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True
    node_type: str = ""
    foreign: Request = Request()
    foreign_pods: int = 0
    gpu_memory_mib: int = 0
    unhealthy: str = ""
    unhealthy_since_us: int = 0
    unhealthy_gpus: tuple[int, ...] = ()
    lost_gpus: int = 0
    foreign_devices: tuple[int, ...] = ()
    published_gpus: tuple[DeviceId, ...] = ()
    scalars: Mapping[str, int] = field(default_factory=dict)
    foreign_traits: tuple[PodTraits, ...] = ()
    host_fault: str = ""
    host_fault_since_us: int = 0

    @property
    def usable_gpus(self) -> int:
        """The number of GPUs that pods can use, including those in use."""
        return max(0, self.gpu_count - len(self.unhealthy_gpus) - self.lost_gpus)

    @property
    def gpu_model(self) -> str:
        """The model of its GPUs; empty if no label names it."""
        return self.labels.get(GPU_MODEL_LABEL, "")


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `allowed` of these pods (ids) can be evicted in this decision; messages show the `name`."""

    name: str
    allowed: int
    pods: tuple[str, ...]


class FailureKind(enum.Enum):
    """How a start of a pod failed."""

    REJECTED = "rejected"
    """The kubelet or the container runtime failed the pod before a container ran."""
    REFUSED = "refused"
    """The API server refused the binding, a ResourceClaim or the nomination of the pod."""
    NOT_STARTED = "not-started"
    """The pod was evicted because its containers did not start in time."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A failed start of a pod, before any container ran: the node, the ids of workload and pod, and the reason.

    `at_us` is the time of the failure, 0 if unknown. `node_recovered`: a container started on the node later.
    `workload_recovered`: a container of the workload started later, on any node.
    """

    node: str
    workload: str
    pod: str
    reason: str = ""
    kind: FailureKind = FailureKind.REJECTED
    at_us: int = 0
    node_recovered: bool = False
    workload_recovered: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision may depend on. `now_us` 0: rules about time do not apply.

    `left_over` are the workloads (ids) that the last decision did not reach; this decision serves them first.
    `rejections` are the remembered failed starts, oldest first.
    """

    nodes: tuple[Node, ...]
    projects: tuple[Project, ...]
    workloads: tuple[Workload, ...]
    now_us: int = 0
    settings: Settings = DEFAULT_SETTINGS
    budgets: tuple[Budget, ...] = ()
    left_over: tuple[str, ...] = ()
    dynamic: DynamicResources = NO_DYNAMIC_RESOURCES
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """The devices that a pod's ResourceClaim gets at the binding. `extended`: the claim must be created first."""

    claim: Claim
    allocation: Allocation
    extended: bool = False


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod gets these devices of this node, now.

    `grants`: for each of the pod's ResourceClaims without devices, the devices that the claim gets now.
    """

    pod: str
    workload: str
    node: str
    devices: tuple[int, ...]
    grants: tuple[ClaimGrant, ...] = ()


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod is evicted so that `beneficiary` can run; `message` names victim, GPUs, preemptor and rule."""

    pod: str
    workload: str
    beneficiary: str
    rule: str
    message: str


class Waiting(enum.Enum):
    """The one dominant reason of a pending workload."""

    PROJECT_LIMIT = "ProjectLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"
    TOO_LARGE = "LargerThanAnyNode"
    NO_NODE_MATCHES = "NoNodeMatches"
    RELEASING = "WaitingForRelease"
    FRAGMENTED = "Fragmented"
    AT_FAIR_SHARE = "AtFairShare"
    CLUSTER_FULL = "ClusterFull"
    RESERVED = "WaitsForReservedNodes"
    HELD = "HeldForAnother"
    UNKNOWN_PROJECT = "UnknownProject"
    INCOMPLETE_GANG = "IncompleteGang"
    CLAIMS = "ClaimsNotAllocatable"
    AVOIDED = "NodesAvoided"
    BACK_OFF = "BackOff"
    POD_CONSTRAINTS = "PodConstraints"


CAPACITY_REASONS = (
    Waiting.CLUSTER_FULL,
    Waiting.FRAGMENTED,
    Waiting.AT_FAIR_SHARE,
    Waiting.RESERVED,
    Waiting.HELD,
    Waiting.POD_CONSTRAINTS,
)
"""Pending reasons of workloads that would start with more capacity."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """The reason of a pending workload; `message` names the reason and possible remedies."""

    code: Waiting
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a decision. `shares_gpu_milli` and `allocated_gpu_milli` are by project, departments included.

    - `nominations`: the nominations that are valid after this decision, new and earlier. Each is a placement that
      terminating pods still use. `pod` is the id of the pending pod, or of the evicted pod whose replacement pod gets
      the placement.
    - `left_over`: the workloads that this decision did not reach within its bound on work.
    - `endangered`: by workload, the reason why it stays on unhealthy hardware.
    - `deallocations`: keys of ResourceClaims whose devices are taken back. Only pending pods use them. These pods may
      start with other devices.
    - `avoided`: by node, the reason why no pod is placed there.
    """

    bindings: tuple[Binding, ...]
    evictions: tuple[Eviction, ...]
    shares_gpu_milli: Mapping[str, int]
    allocated_gpu_milli: Mapping[str, int]
    pending: Mapping[str, PendingReason]
    nominations: tuple[Binding, ...] = ()
    left_over: tuple[str, ...] = ()
    endangered: Mapping[str, str] = field(default_factory=dict)
    deallocations: tuple[str, ...] = ()
    avoided: Mapping[str, str] = field(default_factory=dict)
