"""The planner's vocabulary: what it is told (`Snapshot`) and what it answers (`Plan`).

All quantities are exact integers with their unit in the name. `gpu_milli` counts thousandths of one device.
Times are microseconds since the epoch; the planner compares them and never reads a clock.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

DEVICE_MILLI = 1000
"""One whole GPU, in `gpu_milli`."""


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
class LabelRequirement:
    """One expression of a node selector term: operators `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may run. Equal constraints are evaluated once for each node, however many pods have them.

    `node_terms` is a disjunction of conjunctions, as in a pod's required node affinity; empty means anywhere.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[tuple[LabelRequirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod asks for: whole devices, or a portion (1 to 999 thousandths) of one device."""

    gpu_count: int = 0
    gpu_portion_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0

    @property
    def gpu_milli(self) -> int:
        """What the pod counts against quotas."""
        return self.gpu_count * DEVICE_MILLI + self.gpu_portion_milli


class PodState(enum.Enum):
    """Where a pod stands between the queue and its end; pods that have finished are not in a snapshot."""

    PENDING = "pending"
    ALLOCATED = "allocated"
    RELEASING = "releasing"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `node` and `devices` (indices of GPUs on the node) are set unless it is pending."""

    id: str
    name: str
    request: Request
    constraints: Constraints = Constraints()
    state: PodState = PodState.PENDING
    node: str | None = None
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods that are judged together: they count as one victim, and `min_member` of them run or none does.

    `created_at_us` is the age in the queue and survives an eviction; `started_at_us` is when its oldest
    running pod started, 0 when none runs.
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


@dataclass(frozen=True, slots=True)
class Project:
    """A team's claim. `limit_gpu_milli` None: no limit. `over_quota_weight` is its part of what is left over.

    A project with children is a department: its workloads are those of its children.
    """

    name: str
    quota_gpu_milli: int
    limit_gpu_milli: int | None = None
    over_quota_weight: int = 1
    priority: int = 0
    parent: str | None = None
    created_at_us: int = 0
    train_node_types: tuple[str, ...] = ()
    interactive_node_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `schedulable` is false when it is cordoned or not ready: what runs there still counts.

    `node_type` is the group that administrators put it in, which projects may be restricted to.
    `foreign` is what pods of other schedulers hold; their GPUs have unknown indices and are taken from the top.
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision may depend on."""

    nodes: tuple[Node, ...]
    projects: tuple[Project, ...]
    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod gets these devices of this node, now."""

    pod: str
    workload: str
    node: str
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod must go so that `beneficiary` can run; `message` says who lost which GPUs to whom by which rule."""

    pod: str
    workload: str
    beneficiary: str
    rule: str
    message: str


class Waiting(enum.Enum):
    """The one dominant reason why a workload waits."""

    PROJECT_LIMIT = "ProjectLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"
    TOO_LARGE = "LargerThanAnyNode"
    NO_NODE_MATCHES = "NoNodeMatches"
    RELEASING = "WaitingForRelease"
    FRAGMENTED = "Fragmented"
    AT_FAIR_SHARE = "AtFairShare"
    CLUSTER_FULL = "ClusterFull"
    UNKNOWN_PROJECT = "UnknownProject"


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a workload waits, and what would make it fit."""

    code: Waiting
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. `shares_gpu_milli` and `allocated_gpu_milli` are by project, departments included."""

    bindings: tuple[Binding, ...]
    evictions: tuple[Eviction, ...]
    shares_gpu_milli: Mapping[str, int]
    allocated_gpu_milli: Mapping[str, int]
    pending: Mapping[str, PendingReason]
