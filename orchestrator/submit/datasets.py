"""The volumes and snapshots of a project: their sources, users and manifests. Pure.

The source of a clone is read from the PVC's `dataSource`. The API server keeps it unchanged, also for clones by
kubectl or other tools.

The name in `dataSource` can refer to an earlier volume of the same name. So a PVC that is older than a volume is not
its clone. A PVC of the same second counts as a clone, so at worst muster refuses a deletion that would be safe.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.cluster.objects import (
    FINISHED,
    Job,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    StatefulSet,
    VolumeSnapshot,
)
from orchestrator.cluster.quantity import format_bytes, memory_bytes
from orchestrator.cluster.resources import CLAIMS, VOLUME_SNAPSHOTS
from orchestrator.cluster.wire import has_condition
from orchestrator.names import WORKLOAD_LABEL

Manifest = dict[str, Any]

_ENDED: Final = " (ended)"
BOUND: Final = "Bound"
READY: Final = "Ready"
PENDING: Final = "Pending"
FAILED: Final = "Failed"
TERMINATING: Final = "Terminating"
STORAGE: Final = "storage"
ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")


@dataclass(frozen=True, slots=True)
class DataSource:
    """The source of a volume: a volume or a snapshot of its project, by name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class NewVolume:
    """A volume to create with a request of `size_bytes`. A storage class of None: the cluster's default class."""

    name: str
    size_bytes: int
    storage_class: str | None = None
    access_modes: tuple[str, ...] = (ACCESS_MODES[0],)
    volume_mode: str = "Filesystem"
    source: DataSource | None = None


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of a project: the facts of its PVC that the command line shows.

    `status` is Pending, Bound, Lost or Terminating. `size_bytes` is its size, or until it is bound the requested size.
    `clones` and `snapshots` are its copies; `used_by` are the jobs and pods that mount it.
    """

    name: str
    uid: str
    status: str
    size_bytes: int
    storage_class: str | None
    access_modes: tuple[str, ...]
    volume_mode: str
    created_at: str
    source: DataSource | None = None
    clones: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a project. `status` is Ready, Pending, Failed or Terminating.

    `volume` is the source PVC, "" if it was imported. `size_bytes` is the minimum size of a volume that is restored
    from it; None: not known. `restored` are the volumes that were restored from it.
    """

    name: str
    uid: str
    status: str
    volume: str
    size_bytes: int | None
    created_at: str
    problem: str = ""
    restored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Datasets:
    """The volumes and snapshots in a project's namespace, and the workloads that can use them."""

    claims: Sequence[PersistentVolumeClaim]
    snapshots: Sequence[VolumeSnapshot] = ()
    pods: Sequence[Pod] = ()
    jobs: Sequence[Job] = ()
    stateful_sets: Sequence[StatefulSet] = ()
    users: dict[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", _users(self))


def volumes(datasets: Datasets) -> list[Volume]:
    """Return the volumes by name."""
    views = [_volume(claim, datasets) for claim in datasets.claims]
    return sorted(views, key=lambda volume: volume.name)


def snapshots(datasets: Datasets) -> list[Snapshot]:
    """Return the snapshots by name."""
    views = [_snapshot(snapshot, datasets) for snapshot in datasets.snapshots]
    return sorted(views, key=lambda snapshot: snapshot.name)


def objection_to_deletion(volume: Volume, *, force: bool = False) -> str:
    """Return why a volume cannot be deleted, with the names of its users, clones and snapshots; "" if it can.

    With `force`, only users prevent the deletion.
    """
    reasons = []
    if volume.used_by:
        reasons.append(f"it is used by {_listed(volume.used_by)}: delete that first")
    if volume.clones and not force:
        reasons.append(f"it has clones: {_listed(volume.clones)}")
    if volume.snapshots and not force:
        reasons.append(f"it has snapshots: {_listed(volume.snapshots)}")
    return "; ".join(reasons)


def objection_to_replacement(volume: Volume, datasets: Datasets) -> str:
    """Return why a volume cannot be replaced now; "" if it can.

    Finished clones and snapshots do not need the volume; those still in progress do.
    """
    if volume.used_by:
        return f"it is used by {_listed(volume.used_by)}: delete that first"
    clones = {claim.metadata.name for claim in datasets.claims if claim.status.phase != BOUND}
    fresh = [name for name in volume.clones if name in clones]
    ready = {snapshot.name for snapshot in snapshots(datasets) if snapshot.status == READY}
    fresh += [name for name in volume.snapshots if name not in ready]
    return f"{_listed(fresh)} is still being made from it: wait for that first" if fresh else ""


def claim_manifest(volume: NewVolume, namespace: str) -> Manifest:
    """Return the manifest of the volume's PVC."""
    spec: Manifest = {
        "accessModes": list(volume.access_modes),
        "volumeMode": volume.volume_mode,
        "resources": {"requests": {STORAGE: format_bytes(volume.size_bytes)}},
    }
    if volume.storage_class is not None:
        spec["storageClassName"] = volume.storage_class
    if volume.source is not None:
        spec["dataSource"] = data_source(volume.source)
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {"name": volume.name, "namespace": namespace},
        "spec": spec,
    }


def data_source(source: DataSource) -> Manifest:
    """Return the `dataSource` of a PVC."""
    group = {"apiGroup": VOLUME_SNAPSHOTS.group} if source.kind == VOLUME_SNAPSHOTS.kind else {}
    return {**group, "kind": source.kind, "name": source.name}


def snapshot_manifest(name: str, volume: str, namespace: str, snapshot_class: str | None) -> Manifest:
    """Return the manifest of a volume's snapshot. A class of None: the default class of the volume's driver."""
    spec: Manifest = {"source": {"persistentVolumeClaimName": volume}}
    if snapshot_class is not None:
        spec["volumeSnapshotClassName"] = snapshot_class
    return {
        "apiVersion": VOLUME_SNAPSHOTS.api_version,
        "kind": VOLUME_SNAPSHOTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def success_snapshots(job: Job) -> list[Manifest]:
    """Return a snapshot manifest for each PVC that a Job's pods mount, labelled with the Job's name.

    The names depend on the Job alone, so that a repeated call creates no second snapshot.
    """
    claims = dict.fromkeys(
        volume.persistent_volume_claim.claim_name
        for volume in job.spec.template.spec.volumes
        if volume.persistent_volume_claim is not None
    )
    metadata = job.metadata
    manifests = []
    for index, claim in enumerate(claims):
        name = f"{metadata.name}-{index}-{metadata.uid[:8]}"
        manifest = snapshot_manifest(name, claim, metadata.namespace, None)
        manifest["metadata"]["labels"] = {WORKLOAD_LABEL: metadata.name}
        manifests.append(manifest)
    return manifests


def source_of(claim: PersistentVolumeClaim) -> DataSource | None:
    """Return the volume or snapshot from which the PVC was created; None if there is no such source in the PVC's
    namespace.
    """
    source = claim.spec.data_source_ref or claim.spec.data_source
    if source is None or source.namespace not in (None, "", claim.metadata.namespace):
        return None
    of_claims = (source.api_group or "", source.kind) == (CLAIMS.group, CLAIMS.kind)
    of_snapshots = (source.api_group, source.kind) == (VOLUME_SNAPSHOTS.group, VOLUME_SNAPSHOTS.kind)
    return DataSource(source.kind, source.name) if of_claims or of_snapshots else None


def _volume(claim: PersistentVolumeClaim, datasets: Datasets) -> Volume:
    metadata, spec = claim.metadata, claim.spec
    requests = spec.resources.requests if spec.resources else {}
    sizes = [amounts[STORAGE] for amounts in (requests, claim.status.capacity) if STORAGE in amounts]
    return Volume(
        name=metadata.name,
        uid=metadata.uid,
        status=TERMINATING if metadata.deletion_timestamp else claim.status.phase or PENDING,
        size_bytes=max((memory_bytes(str(size)) for size in sizes), default=0),
        storage_class=spec.storage_class_name,
        access_modes=tuple(spec.access_modes),
        volume_mode=spec.volume_mode or "Filesystem",
        created_at=metadata.creation_timestamp,
        source=source_of(claim),
        clones=_made_from(DataSource(CLAIMS.kind, metadata.name), metadata.creation_timestamp, datasets),
        snapshots=tuple(
            sorted(
                snapshot.metadata.name
                for snapshot in datasets.snapshots
                if snapshot.spec.source.persistent_volume_claim_name == metadata.name
                and snapshot.metadata.creation_timestamp >= metadata.creation_timestamp
            )
        ),
        used_by=datasets.users.get(metadata.name, ()),
    )


def _snapshot(snapshot: VolumeSnapshot, datasets: Datasets) -> Snapshot:
    metadata, status = snapshot.metadata, snapshot.status
    problem = status.error.message or "" if status and status.error else ""
    size = status.restore_size if status else None
    word = FAILED if problem else PENDING
    if status and status.ready_to_use:
        word = READY
    return Snapshot(
        name=metadata.name,
        uid=metadata.uid,
        status=TERMINATING if metadata.deletion_timestamp else word,
        volume=snapshot.spec.source.persistent_volume_claim_name or "",
        size_bytes=None if size is None else memory_bytes(str(size)),
        created_at=metadata.creation_timestamp,
        problem="" if word == READY else problem,
        restored=_made_from(
            DataSource(VOLUME_SNAPSHOTS.kind, metadata.name), metadata.creation_timestamp, datasets
        ),
    )


def _made_from(source: DataSource, since: str, datasets: Datasets) -> tuple[str, ...]:
    """Return the names of the PVCs made from the source, which was created at `since` (RFC 3339, in whole seconds)."""
    return tuple(
        sorted(
            claim.metadata.name
            for claim in datasets.claims
            if source_of(claim) == source and claim.metadata.creation_timestamp >= since
        )
    )


def _users(datasets: Datasets) -> dict[str, tuple[str, ...]]:
    """Return the users of PVCs, by the PVC's name: pods, and workloads that will have pods again.

    A pod that ended on a node is a user too: Kubernetes keeps the PVC until that pod is deleted
    (`podUsesPVCForDeletion` of its pvc-protection-controller, 1.36).
    """
    users: dict[str, set[str]] = {}
    for pod in datasets.pods:
        workload = pod.metadata.labels.get(WORKLOAD_LABEL)
        name = f"job {workload}" if workload else f"pod {pod.metadata.name}"
        if pod.status.phase not in FINISHED:
            _note(users, name, pod.spec)
        elif pod.spec.node_name and not pod.metadata.deletion_timestamp:
            _note(users, f"{name}{_ENDED}", pod.spec)
    for job in datasets.jobs:
        if not _has_ended(job):
            _note(users, f"job {job.metadata.name}", job.spec.template.spec)
    for stateful_set in datasets.stateful_sets:
        _note(users, f"job {stateful_set.metadata.name}", stateful_set.spec.template.spec)
    return {claim: tuple(sorted(_without_repetitions(names))) for claim, names in users.items()}


def _without_repetitions(names: set[str]) -> set[str]:
    """Return the names without entries for ended pods of jobs that have an entry themselves."""
    return {name for name in names if not (name.endswith(_ENDED) and name.removesuffix(_ENDED) in names)}


def _has_ended(job: Job) -> bool:
    return any(has_condition(job.status.conditions, word) for word in ("Complete", "Failed"))


def _note(users: dict[str, set[str]], name: str, spec: PodSpec) -> None:
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            users.setdefault(volume.persistent_volume_claim.claim_name, set()).add(name)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
