"""The Kubernetes objects that muster reads, as narrow structs.

They have only the fields that muster uses. Decoding skips the rest, so a list of thousands of pods is cheap (about 10
µs for each). Every optional field has a default. All are frozen, because reflectors share them; change one with
`msgspec.structs.replace`.

Decode whole objects with these structs, but do not write a decoded object back: skipped fields would be lost. Write
with a patch, or create new objects. An encoded struct leaves out fields with their default value, so a patch from a
struct cannot reset a field to its default. Use a mapping for a patch.

`gc=False` keeps the garbage collector from walking the caches. It is safe because no struct can be part of a reference
cycle.
"""

from __future__ import annotations

import msgspec

from orchestrator.cluster import resources
from orchestrator.cluster.pods import (
    FINISHED,
    Affinity,
    Container,
    ContainerPort,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    EnvironmentVariable,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodNodeAffinity,
    PodSpec,
    PodStatus,
    PodTemplate,
    PodVolume,
    ResourceRequirements,
    SchedulingGate,
    Toleration,
    TopologySpreadConstraint,
)
from orchestrator.cluster.projects import (
    AmountSpec,
    Directory,
    GpuModelSpec,
    GpuSpec,
    NodeAffinity,
    Project,
    ProjectSpec,
    ProjectStatus,
    SecuritySpec,
    Subject,
)
from orchestrator.cluster.storage_objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeSnapshot,
)
from orchestrator.cluster.wire import (
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    Metadata,
    Object,
    OwnerReference,
    Wire,
)
from orchestrator.cluster.workload_objects import (
    Deployment,
    Job,
    JobSpec,
    JobStatus,
    ReplicaSet,
    ReplicasSpec,
    ReplicasStatus,
    StatefulSet,
)

__all__ = [
    "FINISHED",
    "Affinity",
    "AmountSpec",
    "Condition",
    "ConfigMap",
    "Container",
    "ContainerPort",
    "ContainerState",
    "ContainerStateRunning",
    "ContainerStateTerminated",
    "ContainerStateWaiting",
    "ContainerStatus",
    "Deployment",
    "Directory",
    "EnvironmentVariable",
    "Event",
    "ExposedStatus",
    "GpuModelSpec",
    "GpuSpec",
    "Ingress",
    "IngressBackend",
    "IngressHttp",
    "IngressPath",
    "IngressRule",
    "IngressService",
    "IngressServicePort",
    "IngressSpec",
    "IngressTls",
    "Job",
    "JobSpec",
    "JobStatus",
    "LabelSelector",
    "LabelSelectorRequirement",
    "Lease",
    "LeaseSpec",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "Metadata",
    "Namespace",
    "NamespaceStatus",
    "NetworkPolicy",
    "Node",
    "NodeAddress",
    "NodeAffinity",
    "NodeInfo",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "Object",
    "ObjectReference",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodAffinityTerm",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PodNodeAffinity",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PodVolume",
    "Project",
    "ProjectSpec",
    "ProjectStatus",
    "ReplicaSet",
    "ReplicasSpec",
    "ReplicasStatus",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceRequirements",
    "RoleBinding",
    "SchedulingGate",
    "SecuritySpec",
    "Service",
    "ServicePort",
    "ServiceSpec",
    "StatefulSet",
    "StorageClass",
    "Subject",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "VolumeSnapshot",
    "Wire",
]


class Taint(Wire, frozen=True):
    """Keeps pods without a toleration from the node; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Wire, frozen=True):
    """`kubectl cordon` sets `unschedulable`."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeAddress(Wire, frozen=True):
    """One address of a node; `type` is Hostname, InternalIP or ExternalIP."""

    type: str
    address: str


class NodeInfo(Wire, frozen=True):
    """The kubelet's report about its node."""

    kubelet_version: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class NodeStatus(Wire, frozen=True):
    """The resources of a node; quantities as text by resource name."""

    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    conditions: list[Condition] = []
    addresses: list[NodeAddress] = []
    node_info: NodeInfo = NodeInfo()


class Node(Object, frozen=True):
    """A node."""

    resource = resources.NODES

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(Wire, frozen=True):
    """`phase` is Active or Terminating."""

    phase: str = ""


class Namespace(Object, frozen=True):
    """A namespace."""

    resource = resources.NAMESPACES

    status: NamespaceStatus = NamespaceStatus()


class ConfigMap(Object, frozen=True):
    """Text by key."""

    resource = resources.CONFIG_MAPS

    data: dict[str, str] = {}


class ServicePort(Wire, frozen=True):
    """One port of a service; `node_port` is 0 for a port without one."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0


class ServiceSpec(Wire, frozen=True):
    """Where a service sends traffic; `type` is ClusterIP, NodePort, LoadBalancer or ExternalName."""

    type: str = ""
    ports: list[ServicePort] = []
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    external_ips: list[str] = msgspec.field(default_factory=list, name="externalIPs")


class LoadBalancerIngress(Wire, frozen=True):
    """One address under which a load balancer or ingress is reached."""

    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(Wire, frozen=True):
    """The addresses that a load balancer or ingress was given."""

    ingress: list[LoadBalancerIngress] = []


class ExposedStatus(Wire, frozen=True):
    """The status of a service or an ingress."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(Object, frozen=True):
    """A service."""

    resource = resources.SERVICES

    spec: ServiceSpec = ServiceSpec()
    status: ExposedStatus = ExposedStatus()


class IngressServicePort(Wire, frozen=True):
    """The port of a service that an ingress leads to, by number or by name."""

    number: int = 0
    name: str = ""


class IngressService(Wire, frozen=True):
    """The service that an ingress leads to."""

    name: str
    port: IngressServicePort = IngressServicePort()


class IngressBackend(Wire, frozen=True):
    """Where an ingress path leads."""

    service: IngressService | None = None


class IngressPath(Wire, frozen=True):
    """One path of an ingress rule."""

    backend: IngressBackend = IngressBackend()
    path: str = ""
    path_type: str = ""


class IngressHttp(Wire, frozen=True):
    """The paths of an ingress rule."""

    paths: list[IngressPath] = []


class IngressRule(Wire, frozen=True):
    """One rule of an ingress; no host means every host."""

    host: str = ""
    http: IngressHttp | None = None


class IngressTls(Wire, frozen=True):
    """The hosts that an ingress serves over TLS."""

    hosts: list[str] = []


class IngressSpec(Wire, frozen=True):
    """The routes of an ingress."""

    ingress_class_name: str | None = None
    rules: list[IngressRule] = []
    tls: list[IngressTls] = []


class Ingress(Object, frozen=True):
    """An ingress."""

    resource = resources.INGRESSES

    spec: IngressSpec = IngressSpec()
    status: ExposedStatus = ExposedStatus()


class ObjectReference(Wire, frozen=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Event(Object, frozen=True):
    """Something that happened to an object; `type` is Normal or Warning."""

    resource = resources.EVENTS

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    action: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


class LeaseSpec(Wire, frozen=True):
    """The holder of a lease, and its times. If the holder is None or "", the lease is free."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    """A lease, on which replicas elect a leader."""

    resource = resources.LEASES

    spec: LeaseSpec = LeaseSpec()


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """The pods that the budget protects, by their labels; no pods without a selector."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """The number of further pods that may be evicted now, computed for `observed_generation`."""

    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Object, frozen=True):
    """A limit on the number of selected pods that evictions may make unavailable at the same time."""

    resource = resources.POD_DISRUPTION_BUDGETS

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class RoleBinding(Object, frozen=True):
    """A binding of a role in a namespace; only its metadata is read."""

    resource = resources.ROLE_BINDINGS


class NetworkPolicy(Object, frozen=True):
    """The senders that may reach pods of a namespace; only its metadata is read."""

    resource = resources.NETWORK_POLICIES


class ResourceQuotaSpec(Wire, frozen=True):
    """The bounds of a namespace, by resource name."""

    hard: dict[str, str | int] = {}


class ResourceQuota(Object, frozen=True):
    """The bounds of a namespace."""

    resource = resources.RESOURCE_QUOTAS

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
