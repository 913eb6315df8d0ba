"""Pods as muster reads them; see `objects`."""

from __future__ import annotations

from typing import Final

import msgspec

from orchestrator.cluster import resources
from orchestrator.cluster.wire import (
    Condition,
    LabelSelector,
    Metadata,
    Object,
    Timestamp,
    Wire,
    without_null,
)


class ResourceRequirements(Wire, frozen=True):
    """Quantities by resource name, as text; see `quantity`."""

    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class EnvironmentVariable(Wire, frozen=True):
    """One variable of a container. `value` is empty if the value comes from another source."""

    name: str
    value: str = ""


class ContainerPort(Wire, frozen=True):
    """A port of a container. With a `host_port`, it is also that port of the node."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Wire, frozen=True):
    """One container of a pod. `restart_policy` is Always on an init container that is a sidecar."""

    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvironmentVariable] = []
    ports: list[ContainerPort] = []
    restart_policy: str = ""
    stdin: bool = False
    tty: bool = False


class NodeSelectorRequirement(Wire, frozen=True):
    """One test of a node's label (or field): In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Wire, frozen=True):
    """All of its requirements must match."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Wire, frozen=True):
    """Any of its terms must match."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Wire, frozen=True):
    """Nodes that the pod prefers: a matching node scores `weight` more."""

    weight: int
    preference: NodeSelectorTerm = NodeSelectorTerm()


class PodNodeAffinity(Wire, frozen=True):
    """The nodes that a pod requires and those that it prefers."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Wire, frozen=True):
    """The selected pods, by labels and namespaces, and the node label whose values are the topology domains."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Wire, frozen=True):
    """Pods beside which a pod prefers to run (affinity) or not to run (anti-affinity)."""

    weight: int
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """The pods beside which a pod must run (affinity) or must not run (anti-affinity), and those that it prefers."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    """The affinity of a pod to nodes and to other pods."""

    node_affinity: PodNodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    """A rule about the distribution of the selected pods over the values of a node label."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Toleration(Wire, frozen=True):
    """A taint that the pod tolerates; no key means every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(Wire, frozen=True):
    """A scheduling gate. While a pod has a gate, a scheduler must not bind it."""

    name: str


class ClaimSource(Wire, frozen=True):
    """The PVC of a volume of a pod."""

    claim_name: str


class EphemeralSource(Wire, frozen=True):
    """A volume with a PVC that Kubernetes creates for the pod. The size is in the PVC."""


class HostPathSource(Wire, frozen=True):
    """The directory or file of the node that a volume of a pod mounts."""

    path: str = ""


class OtherSource(Wire, frozen=True):
    """A source of a volume that a kubelet can mount on any node. Its fields are not read."""


class PodVolume(Wire, frozen=True):
    """One volume of a pod. Only PVCs and paths of the node are read, because volumes of other kinds can be mounted
    on every node.
    """

    name: str
    host_path: HostPathSource | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    config_map: OtherSource | None = None
    csi: OtherSource | None = None
    downward_api: OtherSource | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: OtherSource | None = None
    image: OtherSource | None = None
    nfs: OtherSource | None = None
    projected: OtherSource | None = None
    secret: OtherSource | None = None

    @property
    def is_implemented(self) -> bool:
        """Whether muster knows the kind of the volume. The API server writes a kind into every volume."""
        kinds = self.__struct_fields__[1:]
        return any(getattr(self, kind) is not None for kind in kinds)


class PodSchedulingGroup(Wire, frozen=True):
    """The pod group of Kubernetes' own gang scheduling to which a pod belongs."""

    pod_group_name: str = ""


class PodResourceClaim(Wire, frozen=True):
    """A ResourceClaim that a pod refers to: by its own name, or by the name of its template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Wire, frozen=True):
    """The request of a pod, and its node ("" while it is not bound)."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    tolerations: list[Toleration] = []
    priority: int = 0
    priority_class_name: str = ""
    scheduling_gates: list[SchedulingGate] = []
    scheduling_group: PodSchedulingGroup | None = None
    volumes: list[PodVolume] = []
    resources: ResourceRequirements = ResourceRequirements()
    overhead: dict[str, str | int] = {}
    active_deadline_seconds: int | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()


class ContainerStateWaiting(Wire, frozen=True):
    """The container has not started yet. `reason` and `message` say why."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Wire, frozen=True):
    """The container runs since `started_at`."""

    started_at: Timestamp = ""

    def __post_init__(self) -> None:
        without_null(self, "started_at")


class ContainerStateTerminated(Wire, frozen=True):
    """The container ended with `exit_code`."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: Timestamp = ""
    finished_at: Timestamp = ""

    def __post_init__(self) -> None:
        without_null(self, "started_at")
        without_null(self, "finished_at")


class ContainerState(Wire, frozen=True):
    """The state of a container. At most one field is set. If no field is set, the container is waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True):
    """The state of one container; `container_id` begins with the runtime, such as `containerd://`.

    `resources` are the resources with which the container runs, `allocated_resources` those that its kubelet has
    granted.
    """

    name: str
    container_id: str = msgspec.field(default="", name="containerID")
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int] = {}


FINISHED: Final = ("Succeeded", "Failed")
"""The phases in which a pod has ended and holds nothing any more."""


class PodResourceClaimStatus(Wire, frozen=True):
    """The ResourceClaim that was created from a template; no name if the pod needs no claim."""

    name: str
    resource_claim_name: str | None = None


class ContainerRequestMapping(Wire, frozen=True):
    """The request of the pod's ResourceClaim for extended resources that serves a resource of a container."""

    container_name: str
    resource_name: str
    request_name: str


class ExtendedResourceClaimStatus(Wire, frozen=True):
    """The claim that a scheduler made for the extended resources of a pod."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerRequestMapping, ...] = ()


class PodStatus(Wire, frozen=True):
    """The state of a pod; `phase` is Pending, Running, Succeeded, Failed or Unknown.

    `resources` and `allocated_resources` mean the same as in `ContainerStatus`, for the pod as a whole.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    start_time: str = ""
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, str | int] = {}
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")


class Pod(Object, frozen=True):
    """A pod."""

    resource = resources.PODS

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(Wire, frozen=True):
    """The pods that a workload makes."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
