"""Where each kind of object lives in the Kubernetes API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from orchestrator.errors import UsageError
from orchestrator.names import GROUP


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object: its API group ("" for core), version, plural as in URLs, kind and scope."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`v1` for the core group, `group/version` otherwise."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of an object, or of the collection where `name` is None.

        Without a namespace, the path of a namespaced resource is the collection over all namespaces; a `name` raises
        ValueError then. The namespace of a cluster-scoped resource is ignored.
        """
        if subresource is not None and name is None:
            raise ValueError(f"{self.plural}/{subresource}: name the object whose subresource is meant")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.plural}/{name}: a {self.kind} is named within a namespace, give one")
        parts.append(self.plural)
        if name is not None:
            if not name:
                raise ValueError(f"{self.plural}: the name is empty, which would mean the whole collection")
            if name in {".", ".."}:
                raise ValueError(
                    f"{self.plural}/{name}: this is no name; as part of a URL it means a collection"
                )
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUMES: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
EVENTS: Final = Resource("", "v1", "events", "Event")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
INGRESSES: Final = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
ADMISSION_POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
ADMISSION_POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
POD_DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PROJECTS: Final = Resource(GROUP, "v1alpha1", "projects", "Project", namespaced=False)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CLUSTER_ROLES: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
EVICTION_RECORDS: Final = Resource(GROUP, "v1alpha1", "evictionrecords", "EvictionRecord")
RESOURCE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
DRA_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""The supported versions of resource.k8s.io, the best first."""
VOLUME_SNAPSHOTS: Final = Resource("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot")
VOLUME_SNAPSHOT_CLASSES: Final = Resource(
    "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False
)
GPU_NODES: Final = Resource(GROUP, "v1alpha1", "gpunodes", "GpuNode", namespaced=False)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
SELF_SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
SELF_SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)

ALL: Final = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    SECRETS,
    CLAIMS,
    PERSISTENT_VOLUMES,
    EVENTS,
    JOBS,
    STATEFUL_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    INGRESSES,
    NETWORK_POLICIES,
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    STORAGE_CLASSES,
    LEASES,
    POD_DISRUPTION_BUDGETS,
    PROJECTS,
    CRDS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    EVICTION_RECORDS,
    VOLUME_SNAPSHOTS,
    VOLUME_SNAPSHOT_CLASSES,
    GPU_NODES,
    DAEMON_SETS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
)
_BY_KIND: Final = {(resource.api_version, resource.kind): resource for resource in ALL}


def resource_of(api_version: str, kind: str) -> Resource:
    """Return the resource of an object in a manifest, for instance ("apps/v1", "Deployment").

    Raises UsageError for a kind that muster does not know.
    """
    try:
        return _BY_KIND[api_version, kind]
    except KeyError as error:
        raise UsageError(
            f"kind {kind!r} of apiVersion {api_version!r} is none that muster can apply; apply it with kubectl"
        ) from error
