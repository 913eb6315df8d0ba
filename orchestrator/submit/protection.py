"""Labels and annotations of a project's namespace by which Kubernetes enforces the rights of its pods.

The policies of the operator YAML (`manifests/templates/50-policies.yaml.j2`) read these labels and annotations. Pod
Security admission reads its own labels. Members cannot write namespaces. Pure.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.objects import Directory, Metadata, ProjectSpec
from orchestrator.cluster.projects import BASELINE
from orchestrator.cluster.resources import NETWORK_POLICIES
from orchestrator.errors import FieldProblem
from orchestrator.submit.collisions import is_below
from orchestrator.submit.network import DEFAULT_INGRESS, DEFAULT_INGRESS_CLASS, IngressSettings
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import Mount


class NotAllowed(FieldProblem):
    """The namespace of the project refuses pods of this submission."""


class PolicyMode(Enum):
    """Action for an object that violates a policy of a project's namespace."""

    DENY = "deny"
    """The object is refused."""
    WARN = "warn"
    """The API server warns the user, and writes its audit log."""
    AUDIT = "audit"
    """The API server writes its audit log."""
    OFF = "off"
    """There are no policies, for Kubernetes before 1.30. Only Pod Security is enforced."""


BASELINE_CAPABILITIES: Final = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
"""Capabilities that containers may add at the level baseline."""

CONTROL_PLANE_TAINTS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""The taints of control-plane nodes, which pods of projects do not tolerate."""

PRIVILEGED: Final = "privileged"
RESTRICTED: Final = "restricted"
RESTRICTED_POD: Final = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
"""The securityContext of a pod at the level restricted."""

_POD_SECURITY: Final = "pod-security.kubernetes.io/"
_ENFORCE, _WARN, _AUDIT = (_POD_SECURITY + word for word in ("enforce", "warn", "audit"))

LABELS: Final = (names.POD_SECURITY_LABEL, _ENFORCE, _WARN, _AUDIT)
"""The labels that the operator sets on a project's namespace."""

ANNOTATIONS: Final = (
    names.READ_ONLY_DIRECTORIES_ANNOTATION,
    names.WRITABLE_DIRECTORIES_ANNOTATION,
    names.CLOSED_DIRECTORIES_ANNOTATION,
    names.PRIORITY_CLASSES_ANNOTATION,
    names.MAX_TERMINATION_GRACE_ANNOTATION,
    names.INGRESS_DOMAIN_ANNOTATION,
    names.INGRESS_CLASS_ANNOTATION,
    names.INGRESS_HOST_ANNOTATION,
    names.SCHEDULER_ANNOTATION,
    names.CONTROL_PLANE_ANNOTATION,
    names.DEVICE_RESOURCES_ANNOTATION,
)
"""The annotations that the operator sets on a project's namespace."""


def labels(spec: ProjectSpec, mode: PolicyMode, *, limits_gpu_memory: bool = False) -> dict[str, str]:
    """Return the labels of the project's namespace.

    The levels of Pod Security allow no directories of the node. If a project has such directories and the mode is deny,
    muster's policy enforces the rest of the level baseline instead. With `limits_gpu_memory`, this
    policy does so for every project, also at the level restricted.
    """
    security = spec.security
    level = security.pod_security or BASELINE
    result = {names.POD_SECURITY_LABEL: level}
    if mode is PolicyMode.WARN:
        return result | {_WARN: level, _AUDIT: level}
    if mode is PolicyMode.AUDIT:
        return result | {_AUDIT: level}
    has_host_paths = any(not directory.nfs_server for directory in security.directories)
    by_policy = mode is PolicyMode.DENY and ((level == BASELINE and has_host_paths) or limits_gpu_memory)
    return result | {_ENFORCE: PRIVILEGED if by_policy else level}


def annotations(
    spec: ProjectSpec,
    closed: Iterable[str] = (),
    *,
    limits_gpu_memory: bool = False,
    ingress: IngressSettings = DEFAULT_INGRESS,
    device_resources: Iterable[str] = (),
) -> dict[str, str]:
    """Return the annotations of the project's namespace, without those for unset settings.

    The project's pods may mount nothing below the `closed` directories. With `limits_gpu_memory` they may mount the
    library that limits GPU memory. `ingress` has the settings for Ingresses of jobs. `device_resources` are extended
    resources of DeviceClasses.
    """
    security = spec.security
    read_only = [source for source in (_sources(security.directories, writable=False),) if source]
    if limits_gpu_memory:
        read_only.append(names.GPU_MEMORY_DIRECTORY)
    grace_seconds = security.max_termination_grace_seconds
    values = {
        names.READ_ONLY_DIRECTORIES_ANNOTATION: ",".join(read_only),
        names.WRITABLE_DIRECTORIES_ANNOTATION: _sources(security.directories, writable=True),
        names.CLOSED_DIRECTORIES_ANNOTATION: ",".join(closed),
        names.PRIORITY_CLASSES_ANNOTATION: ",".join(security.priority_classes),
        names.MAX_TERMINATION_GRACE_ANNOTATION: "" if grace_seconds is None else str(grace_seconds),
        names.INGRESS_DOMAIN_ANNOTATION: security.ingress_domain or "",
        names.INGRESS_CLASS_ANNOTATION: ""
        if ingress.class_name == DEFAULT_INGRESS_CLASS
        else ingress.class_name,
        names.INGRESS_HOST_ANNOTATION: ingress.host,
        names.SCHEDULER_ANNOTATION: security.scheduler_name or "",
        names.CONTROL_PLANE_ANNOTATION: "true" if security.control_plane else "",
        names.DEVICE_RESOURCES_ANNOTATION: ",".join(sorted(device_resources)),
    }
    return {key: value for key, value in values.items() if value}


def metadata_patch(
    spec: ProjectSpec,
    mode: PolicyMode,
    known: Metadata,
    closed: Iterable[str] = (),
    *,
    limits_gpu_memory: bool = False,
    ingress: IngressSettings = DEFAULT_INGRESS,
    device_resources: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the merge patch from the metadata `known` of the namespace to the intended one; {} if they are equal."""
    patch: dict[str, Any] = {}
    for part, keys, right, present in (
        ("labels", LABELS, labels(spec, mode, limits_gpu_memory=limits_gpu_memory), known.labels),
        (
            "annotations",
            ANNOTATIONS,
            annotations(
                spec,
                closed,
                limits_gpu_memory=limits_gpu_memory,
                ingress=ingress,
                device_resources=device_resources,
            ),
            known.annotations,
        ),
    ):
        changes = {key: right.get(key) for key in keys if right.get(key) != present.get(key)}
        if changes:
            patch[part] = changes
    return {"metadata": patch} if patch else {}


def restricted(context: dict[str, Any]) -> dict[str, Any]:
    """Return the securityContext of a container that satisfies the level restricted."""
    capabilities = {**context.get("capabilities", {}), "drop": ["ALL"]}
    return {**context, "allowPrivilegeEscalation": False, "capabilities": capabilities}


def is_restricted(namespace: Metadata) -> bool:
    """Return whether the pods of a project's namespace must meet the level restricted."""
    return namespace.labels.get(names.POD_SECURITY_LABEL) == RESTRICTED


def limits_gpu_memory(namespace: Metadata) -> bool:
    """Return whether pods with a GPU fraction in the namespace mount the library that limits GPU memory."""
    return names.GPU_MEMORY_DIRECTORY in _listed(namespace, names.READ_ONLY_DIRECTORIES_ANNOTATION)


def ingress_settings(namespace: Metadata) -> IngressSettings:
    """Return the class and the host of the Ingresses in a project's namespace, from its annotations."""
    return IngressSettings(
        namespace.annotations.get(names.INGRESS_CLASS_ANNOTATION, DEFAULT_INGRESS_CLASS),
        namespace.annotations.get(names.INGRESS_HOST_ANNOTATION, ""),
    )


def objection(submission: Submission, namespace: Metadata, project: str) -> NotAllowed | None:
    """Return the reason why the project's namespace would refuse the submission's pods, or None.

    None also if no operator manages the namespace, or if the policies only warn.
    """
    level = namespace.labels.get(names.POD_SECURITY_LABEL, PRIVILEGED)
    if level == PRIVILEGED or _ENFORCE not in namespace.labels:
        return None
    more = sorted(set(submission.capabilities) - _capabilities(level))
    is_root = submission.run_as is not None and submission.run_as.uid == 0
    for field, is_more, value in (
        ("host_network", submission.host_network, ""),
        ("host_ipc", submission.host_ipc, ""),
        ("capabilities", bool(more), f" {', '.join(more)}"),
        ("uid", level == RESTRICTED and is_root, " 0"),
        ("privilege_escalation", level == RESTRICTED and bool(submission.privilege_escalation), ""),
    ):
        if is_more:
            return NotAllowed(
                f"{{{field}}}{{value}} is not possible in project {{project}}: its pod security is {{level}}, "
                "and only who administers the cluster can change that",
                value=value,
                project=project,
                level=level,
            )
    return _directory_objection(submission.volumes, namespace, project) or _toleration_objection(
        submission, namespace, project
    )


def _listed(namespace: Metadata, key: str) -> list[str]:
    return [source for source in namespace.annotations.get(key, "").split(",") if source]


def _capabilities(level: str) -> frozenset[str]:
    return frozenset(("NET_BIND_SERVICE",)) if level == RESTRICTED else BASELINE_CAPABILITIES


def _directory_objection(mounts: Iterable[Mount], namespace: Metadata, project: str) -> NotAllowed | None:
    read_only, writable, closed = (
        _listed(namespace, key)
        for key in (
            names.READ_ONLY_DIRECTORIES_ANNOTATION,
            names.WRITABLE_DIRECTORIES_ANNOTATION,
            names.CLOSED_DIRECTORIES_ANNOTATION,
        )
    )
    for mount in mounts:
        source = f"{mount.nfs_server}:{mount.source}" if mount.nfs_server else mount.source
        is_plain = ".." not in source.split("/") and not any(
            is_below(source, directory) for directory in (*writable, *closed)
        )
        is_readable = is_plain and any(
            source == directory or is_below(source, directory) for directory in read_only
        )
        if source in writable or (is_readable and mount.read_only):
            continue
        allowed = [*writable, *(f"{directory} with all below it, read only (:ro)" for directory in read_only)]
        return NotAllowed(
            "{volumes} {source} is not possible in project {project}, which may mount {allowed}; "
            "only who administers the cluster can allow more ('muster project update --directory')",
            source=source,
            project=project,
            allowed=", ".join(allowed) or "no directories of nodes or NFS servers",
        )
    return None


def _toleration_objection(submission: Submission, namespace: Metadata, project: str) -> NotAllowed | None:
    if names.CONTROL_PLANE_ANNOTATION in namespace.annotations:
        return None
    for toleration in submission.tolerations:
        if toleration.key in CONTROL_PLANE_TAINTS and toleration.effect in ("", "NoSchedule"):
            return NotAllowed(
                "{tolerations} {key} is not possible in project {project}; "
                "only who administers the cluster can allow it (spec.security.controlPlane of the Project)",
                key=toleration.key,
                project=project,
            )
    return None


def network_policies(namespace: str) -> list[dict[str, Any]]:
    """Return the NetworkPolicies of a project's namespace, which keep out the pods of other projects.

    Pods of namespaces without a project, such as ingress controllers and monitoring, can reach them. All clients can
    reach pods behind a NodePort or a load balancer.
    """
    same: dict[str, Any] = {"podSelector": {}}
    of_cluster = {
        "namespaceSelector": {"matchExpressions": [{"key": names.PROJECT_LABEL, "operator": "DoesNotExist"}]}
    }
    return [
        _policy(namespace, names.NETWORK_POLICY_NAMES[0], {}, [{"from": [same, of_cluster]}]),
        _policy(
            namespace,
            names.NETWORK_POLICY_NAMES[1],
            {"matchLabels": {names.EXPOSED_LABEL: "true"}},
            [{}],
        ),
    ]


def _policy(
    namespace: str, name: str, selector: dict[str, Any], ingress: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": NETWORK_POLICIES.api_version,
        "kind": NETWORK_POLICIES.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "muster"}},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _sources(directories: Iterable[Directory], *, writable: bool) -> str:
    return ",".join(directory.source for directory in directories if directory.writable is writable)
