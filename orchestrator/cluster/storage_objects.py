"""PVCs, PersistentVolumes, VolumeSnapshots and StorageClasses as muster reads them; see `objects`."""

from __future__ import annotations

from orchestrator.cluster import resources
from orchestrator.cluster.pods import (  # noqa: TC001  (msgspec evaluates the annotations)
    NodeSelector,
    ResourceRequirements,
)
from orchestrator.cluster.wire import Object, Wire


class DataSource(Wire, frozen=True):
    """The source of a PVC's volume: a PVC (no API group) or a VolumeSnapshot. Without a namespace, the source is in
    the PVC's namespace.
    """

    kind: str = ""
    name: str = ""
    api_group: str | None = None
    namespace: str | None = None


class ClaimSpec(Wire, frozen=True):
    """The specification of a PVC; `volume_name` is "" while it has no volume.

    The API server keeps `data_source` and `data_source_ref` as they were when the PVC was created.
    """

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: list[str] = []
    volume_mode: str | None = None
    resources: ResourceRequirements | None = None
    data_source: DataSource | None = None
    data_source_ref: DataSource | None = None


class ClaimStatus(Wire, frozen=True):
    """`phase` is Pending, Bound or Lost; `capacity` has the true size of the volume, by resource name."""

    phase: str = ""
    capacity: dict[str, str | int] = {}


class PersistentVolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim, the request for a volume."""

    resource = resources.CLAIMS

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Wire, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    """The nodes that can use a volume; all nodes without an affinity."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(Object, frozen=True):
    """A volume."""

    resource = resources.PERSISTENT_VOLUMES

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class TopologyRequirement(Wire, frozen=True):
    """The label of a node has one of the values."""

    key: str
    values: list[str] = []


class TopologyTerm(Wire, frozen=True):
    """All of its requirements must match."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(Object, frozen=True):
    """A class of volumes. If there are `allowed_topologies`, at least one of them must match the node of a volume."""

    resource = resources.STORAGE_CLASSES

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []


class SnapshotSource(Wire, frozen=True):
    """The PVC of which a snapshot was taken; None if the snapshot was imported by its VolumeSnapshotContent."""

    persistent_volume_claim_name: str | None = None


class SnapshotSpec(Wire, frozen=True):
    """The source of a snapshot, and its class; no class: the default one of the driver."""

    source: SnapshotSource = SnapshotSource()
    volume_snapshot_class_name: str | None = None


class SnapshotError(Wire, frozen=True):
    """Why the last attempt to take a snapshot failed; the controller tries again."""

    message: str | None = None


class SnapshotStatus(Wire, frozen=True):
    """Whether a snapshot can be restored, and the minimum size of the restored volume (a quantity)."""

    ready_to_use: bool | None = None
    restore_size: str | int | None = None
    error: SnapshotError | None = None


class VolumeSnapshot(Object, frozen=True):
    """A snapshot of a PVC's volume (external-snapshotter)."""

    resource = resources.VOLUME_SNAPSHOTS

    spec: SnapshotSpec = SnapshotSpec()
    status: SnapshotStatus | None = None
