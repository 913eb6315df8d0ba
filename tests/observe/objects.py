"""Kubernetes objects as the API server sends them, decoded as the operator decodes them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from orchestrator.cluster.objects import (
    Job,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Project,
    StorageClass,
)

T = TypeVar("T")


def decoded(kind: type[T], **fields: Any) -> T:
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


def pod(
    name: str,
    *,
    namespace: str = "muster-team-a",
    gpus: int = 0,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: str = "",
    node: str = "",
    phase: str = "Pending",
    spec: Mapping[str, Any] | None = None,
    is_admitted: bool = True,
    started: str = "",
    **metadata: Any,
) -> Pod:
    """Return a pod. If it has a node, `is_admitted` says whether muster bound it."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    uid = str(metadata.get("uid", f"uid-{name}"))
    scheduler = (spec or {}).get("schedulerName", "muster")
    mark = {"muster.dev/admitted": uid} if node and scheduler == "muster" and is_admitted else {}
    references = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}]
    return decoded(
        Pod,
        metadata={
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-21T10:00:05Z",
            "annotations": mark | dict(annotations or {}),
            "labels": dict(labels or {}),
            "ownerReferences": references if owner else [],
            **metadata,
        },
        spec={
            "schedulerName": "muster",
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": {"cpu": "500m"}}}],
            **(spec or {}),
        },
        status={"phase": phase, "startTime": started},
    )


def node(
    name: str, gpus: int = 8, *, ready: bool = True, labels: Mapping[str, str] | None = None, **spec: Any
) -> Node:
    return decoded(
        Node,
        metadata={"name": name, "uid": f"uid-{name}", "labels": dict(labels or {})},
        spec=spec,
        status={
            "allocatable": {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    )


def namespace(name: str, project: str | None = None) -> Namespace:
    """Return a namespace, which belongs to the `project` of that name if one is given."""
    if project is None:
        return decoded(Namespace, metadata={"name": name, "uid": f"uid-{name}"})
    owner = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "name": project,
        "uid": f"uid-{project}",
    }
    labels = {"muster.dev/project": project}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, "ownerReferences": [owner]}
    return decoded(Namespace, metadata=metadata)


def project(name: str, **gpu: Any) -> Project:
    return decoded(Project, metadata={"name": name, "uid": f"uid-{name}"}, spec={"gpu": gpu})


def job(name: str, created: str, **annotations: str) -> Job:
    """Return a Job with muster's annotations; `queued_since` is `muster.dev/queued-since`."""
    metadata = {
        "name": name,
        "uid": name,
        "creationTimestamp": created,
        "annotations": {f"muster.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
    }
    return decoded(Job, metadata=metadata)


def by_uid(*objects: Any) -> dict[str, Any]:
    return {each.metadata.uid: each for each in objects}


def claim(
    name: str,
    storage_class: str | None = None,
    *,
    volume: str = "",
    annotations: Mapping[str, str] | None = None,
    phase: str = "",
    access_modes: Sequence[str] = (),
    **metadata: Any,
) -> PersistentVolumeClaim:
    return decoded(
        PersistentVolumeClaim,
        metadata={
            "name": name,
            "namespace": "muster-team-a",
            "uid": f"uid-{name}",
            "annotations": dict(annotations or {}),
            **metadata,
        },
        spec={"storageClassName": storage_class, "volumeName": volume, "accessModes": list(access_modes)},
        status={"phase": phase or ("Bound" if volume else "Pending")},
    )


def volume(name: str, *terms: Mapping[str, tuple[str, ...]]) -> PersistentVolume:
    """Return a volume with node affinity: for one of the terms, a node must have one of the values of each label."""
    selector = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": values} for key, values in term.items()
            ]
        }
        for term in terms
    ]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": selector}}} if terms else {}
    return decoded(PersistentVolume, metadata={"name": name, "uid": f"uid-{name}"}, spec=affinity)


def storage_class(
    name: str,
    mode: str = "WaitForFirstConsumer",
    provisioner: str = "example.org/disk",
    **topology: tuple[str, ...],
) -> StorageClass:
    allowed = [
        {"matchLabelExpressions": [{"key": key, "values": values}]} for key, values in topology.items()
    ]
    return decoded(
        StorageClass,
        metadata={"name": name, "uid": f"uid-{name}"},
        provisioner=provisioner,
        volumeBindingMode=mode,
        allowedTopologies=allowed,
    )


def mounting(*claims: str) -> dict[str, Any]:
    """Return the part of a pod's specification that has these PersistentVolumeClaims as volumes."""
    return {"volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]}
