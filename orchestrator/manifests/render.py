"""Renders the operator YAML: everything that a cluster needs before muster can schedule on it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from orchestrator import names
from orchestrator.bounded_yaml import LOADER
from orchestrator.distribution import installed_version
from orchestrator.manifests.templating import fill_in
from orchestrator.manifests.web import WebDeployment
from orchestrator.names import (
    DEFAULT_ACCOUNT,
    IMAGE_VARIABLE,
    LAST_OBJECT_VARIABLE,
    MEMBERS_BINDING,
    NAMESPACE_PREFIX,
    OBJECTS_QUOTA,
    OPERATOR_ACCOUNT,
    OPERATOR_BINDING,
    PRIORITY_CLASSES,
    SELECTED_NODE_ANNOTATION,
    SYSTEM_NAMESPACE,
    TEMPLATES_NAMESPACE,
    WRITER_ROLE,
)
from orchestrator.observe.grace_periods import MAX_GRACE_SECONDS
from orchestrator.roles import CONTROLLERS, ROLES
from orchestrator.submit.protection import (
    BASELINE_CAPABILITIES,
    CONTROL_PLANE_TAINTS,
    PolicyMode,
)
from orchestrator.views.nodes import GPU_PRODUCT_LABEL

DEFAULT_REPLICAS = 2

ACTIONS: Final = {
    PolicyMode.DENY: ["Deny"],
    PolicyMode.WARN: ["Warn", "Audit"],
    PolicyMode.AUDIT: ["Audit"],
    PolicyMode.OFF: [],
}
"""The validationActions of the policies' bindings. If a mode has none, the operator YAML has no policies."""

OPERATOR_ANNOTATIONS: Final = (
    names.GPU_DEVICES_ANNOTATION,
    names.GPU_UUIDS_ANNOTATION,
    names.GPU_RESERVATIONS_ANNOTATION,
    names.GPU_MEMORY_LIMITS_ANNOTATION,
    names.NOMINATED_DEVICES_ANNOTATION,
    names.SUCCESSOR_NOMINATION_ANNOTATION,
    names.EVICTION_REASON_ANNOTATION,
    names.ADMITTED_ANNOTATION,
)
"""Annotations of pods that only the operator writes: decisions rely on them."""

REQUEST_ANNOTATIONS: Final = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_FRACTION_DEVICES_ANNOTATION,
    names.GPU_MEMORY_ANNOTATION,
    names.PREEMPTIBLE_ANNOTATION,
)
"""Annotations of a pod's request. They must not change after the pod was bound."""

TRIDENT_GROUP: Final = "trident.netapp.io"

CLAIM_ANNOTATIONS: Final = tuple(
    f"{TRIDENT_GROUP}/{name}"
    for name in (
        *("protocol", "fileSystem", "blockSize", "unixPermissions"),
        *("snapshotPolicy", "snapshotReserve", "snapshotDirectory"),
        *("cloneFromPVC", "cloneFromSnapshot", "splitOnClone", "readOnlyClone"),
    )
)
"""Trident's annotations that a PVC may have, because they affect only its new volume, or PVCs of the same namespace.

All other annotations of Trident are refused. Imports, export policies and shares reach volumes outside the namespace.
"""

BASELINE_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)
VOLUME_KINDS: Final = (
    "configMap",
    "secret",
    "emptyDir",
    "downwardAPI",
    "projected",
    "persistentVolumeClaim",
    "ephemeral",
    "csi",
    "image",
    "hostPath",
    "nfs",
)
"""Allowed volumes of a pod; hostPath and nfs are checked by their directories, csi by its driver."""

INLINE_DRIVERS: Final = ("secrets-store.csi.k8s.io", "csi.cert-manager.io", "csi.spiffe.io")
"""CSI drivers that a pod may use in an inline volume: they provide secrets and certificates for this pod, and no
storage.
"""

GPU_NODE_TERMS: Final = (
    ("nvidia.com/gpu.present", "In", ("true",)),
    (GPU_PRODUCT_LABEL, "Exists", ()),
    ("feature.node.kubernetes.io/pci-10de.present", "In", ("true",)),
    ("feature.node.kubernetes.io/pci-0300_10de.present", "In", ("true",)),
    ("feature.node.kubernetes.io/pci-0302_10de.present", "In", ("true",)),
)
"""Conditions on the labels of a node with GPUs of NVIDIA; one of them is enough.

The first two labels are those of the GPU operator and of GPU feature discovery. The others are those of node feature
discovery, with the vendor's PCI id and the device's class.
"""

NODE_NAME_CLAIM: Final = "authentication.kubernetes.io/node-name"
"""Key of the pod's node in the user information of a service account token. Kubernetes 1.30 or newer."""

INGRESS_WORDS: Final = ("/server-alias", "/host-aliases", "-snippet")
"""Parts of the names of Ingress annotations that no project may have."""

WEB_OBJECTS: Final = ("certificate", "history", "history_claim", "oidc_client_secret", "oidc_authority")
"""The options of the pages that add a volume to their pod. In the templates they begin with `web_`."""

OPERATOR_ARGUMENTS: Final = ("operator", "--health-port=8080")

CONSTANTS: Final[Mapping[str, Any]] = {
    "namespace": SYSTEM_NAMESPACE,
    "templates_namespace": TEMPLATES_NAMESPACE,
    "members_binding": MEMBERS_BINDING,
    "operator_binding": OPERATOR_BINDING,
    "writer_role": WRITER_ROLE,
    "default_account": DEFAULT_ACCOUNT,
    "objects_quota": OBJECTS_QUOTA,
    "network_policies": names.NETWORK_POLICY_NAMES,
    "account": OPERATOR_ACCOUNT,
    "agent_account": names.AGENT_ACCOUNT,
    "agent_namespace": names.AGENT_NAMESPACE,
    "web_account": names.WEB_ACCOUNT,
    "gpu_node_terms": GPU_NODE_TERMS,
    "node_name_claim": NODE_NAME_CLAIM,
    "prefix": NAMESPACE_PREFIX,
    "claim_finalizer": names.CLAIM_FINALIZER,
    "selected_node": SELECTED_NODE_ANNOTATION,
    "priority_classes": PRIORITY_CLASSES,
    "roles": ROLES,
    "controllers": CONTROLLERS,
    "names": names,
    "project_label": names.PROJECT_LABEL,
    "operator_account": f"system:serviceaccount:{SYSTEM_NAMESPACE}:{OPERATOR_ACCOUNT}",
    "operator_annotations": OPERATOR_ANNOTATIONS,
    "request_annotations": REQUEST_ANNOTATIONS,
    "trident_group": TRIDENT_GROUP,
    "claim_annotations": CLAIM_ANNOTATIONS,
    "baseline_capabilities": sorted(BASELINE_CAPABILITIES),
    "baseline_sysctls": BASELINE_SYSCTLS,
    "control_plane_taints": ("", *CONTROL_PLANE_TAINTS),
    "volume_kinds": ("name", *VOLUME_KINDS),
    "inline_drivers": INLINE_DRIVERS,
    "ingress_words": INGRESS_WORDS,
    "image_variable": IMAGE_VARIABLE,
    "last_object_variable": LAST_OBJECT_VARIABLE,
}
"""The values of the templates that a site cannot choose."""


def default_image() -> str:
    """Return the image of this version; a site with a mirror names another image."""
    return f"muster:{installed_version()}"


def render(
    cluster: str,
    *,
    image: str | None = None,
    replicas: int = DEFAULT_REPLICAS,
    operator_arguments: Sequence[str] = (),
    policies: PolicyMode = PolicyMode.DENY,
    max_grace_seconds: int = MAX_GRACE_SECONDS,
    require_devices_variable: bool = False,
    agent: bool | None = None,
    runtime_class: str = "",
    driver_root: str = "",
    reads_hosts: bool = True,
    limits_gpu_memory: bool = False,
    taints_nodes: bool = False,
    web: WebDeployment | None = None,
) -> str:
    """Return the operator YAML of `cluster`. The same arguments give the same text.

    - `operator_arguments`: further options of `muster operator`.
    - `require_devices_variable`: pods must set the devices for the NVIDIA runtime.
    - `agent`: if it is None, there are agents if there are replicas. They use `runtime_class`. With `driver_root` the
      driver is in that directory. With `reads_hosts` they report faults of hosts. With `limits_gpu_memory` they
      install the library for GPU fractions.
    - `taints_nodes`: the operator may set the taint of nodes that are out of service.
    - `web`: None: there are no pages.
    """
    pages = web or WebDeployment()
    parts = fill_in(
        {
            **CONSTANTS,
            "cluster": cluster,
            "image": image or default_image(),
            "replicas": replicas,
            "operator_arguments": [*OPERATOR_ARGUMENTS, *operator_arguments],
            "actions": ACTIONS[policies],
            "max_grace_seconds": max_grace_seconds,
            "require_devices_variable": require_devices_variable,
            "agent": replicas > 0 if agent is None else agent,
            "runtime_class": runtime_class,
            "driver_root": driver_root,
            "reads_hosts": reads_hosts,
            "limits_gpu_memory": limits_gpu_memory,
            "taints_nodes": taints_nodes,
            "web": web is not None,
            "web_arguments": pages.arguments(),
            **{f"web_{name}": getattr(pages, name) for name in WEB_OBJECTS},
        }
    ).values()
    texts = [part.strip() for part in parts]
    return "".join(f"---\n{text.removeprefix('---').strip()}\n" for text in texts if text)


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a rendered text, in order."""
    return [document for document in yaml.load_all(text, LOADER) if document]
