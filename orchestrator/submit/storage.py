"""The volumes and mounts in the manifest of a workload's pod, and its new PVCs."""

from typing import Any

from orchestrator.cluster.quantity import format_bytes
from orchestrator.cluster.resources import CLAIMS
from orchestrator.submit.datasets import DataSource, data_source
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import HOME_PATH, SHARED_MEMORY_PATH, Mount

Manifest = dict[str, Any]


def claim_name(submission: Submission, index: int) -> str:
    """Return the name of the workload's new PVC with the index."""
    return f"pvc-{submission.name}-{index}"


def claim_manifests(submission: Submission, metadata: Manifest) -> list[Manifest]:
    """Return the PVCs that are created with the workload. `metadata` is their metadata without the name."""
    manifests = []
    for index, claim in enumerate(submission.new_claims):
        spec: Manifest = {
            "accessModes": [claim.access_mode],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": format_bytes(claim.size_bytes)}},
        }
        if claim.storage_class:
            spec["storageClassName"] = claim.storage_class
        if claim.clone_of:
            spec["dataSource"] = data_source(DataSource(CLAIMS.kind, claim.clone_of))
        manifests.append(
            {
                "apiVersion": CLAIMS.api_version,
                "kind": CLAIMS.kind,
                "metadata": metadata | {"name": claim_name(submission, index)},
                "spec": spec,
            }
        )
    return manifests


def volumes_and_mounts(submission: Submission) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes of the pod, and the container's mounts of them."""
    sources: list[tuple[Manifest, Mount]] = [
        *((_directory(mount), mount) for mount in submission.volumes),
        *((_claim(mount.source), mount) for mount in submission.claims),
        *(
            (_claim(claim_name(submission, index)), Mount("", claim.path, read_only=claim.read_only))
            for index, claim in enumerate(submission.new_claims)
        ),
    ]
    if submission.large_shm:
        sources.append(({"emptyDir": {"medium": "Memory"}}, Mount("", SHARED_MEMORY_PATH)))
    if submission.home_directory:
        sources.append(({"emptyDir": {}}, Mount("", HOME_PATH)))
    volumes, mounts = [], []
    for index, (source, mount) in enumerate(sources):
        volume_name = f"volume-{index}"
        volumes.append({"name": volume_name} | source)
        volume_mount: Manifest = {"name": volume_name, "mountPath": mount.path}
        if mount.read_only:
            volume_mount["readOnly"] = True
        if submission.mount_propagation and "hostPath" in source:
            volume_mount["mountPropagation"] = "HostToContainer"
        mounts.append(volume_mount)
    return volumes, mounts


def _directory(mount: Mount) -> Manifest:
    if mount.nfs_server:
        return {"nfs": {"server": mount.nfs_server, "path": mount.source}}
    return {"hostPath": {"path": mount.source}}


def _claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}
