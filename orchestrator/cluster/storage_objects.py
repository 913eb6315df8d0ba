"""Volume claims, volumes and storage classes as muster reads them; see `objects`."""

from __future__ import annotations

from orchestrator.cluster import resources
from orchestrator.cluster.pods import NodeSelector  # noqa: TC001  (msgspec evaluates the annotation)
from orchestrator.cluster.wire import Object, Wire


class ClaimSpec(Wire, frozen=True):
    """What a claim asks for; `volume_name` is "" while it has no volume."""

    storage_class_name: str | None = None
    volume_name: str = ""


class ClaimStatus(Wire, frozen=True):
    """`phase` is Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True):
    """A claim of a volume."""

    resource = resources.CLAIMS

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Wire, frozen=True):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    """Where a volume can be used; no affinity: everywhere."""

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
    """All of its requirements must hold."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(Object, frozen=True):
    """How volumes are made; any of `allowed_topologies`, if there are some, must hold for their node."""

    resource = resources.STORAGE_CLASSES

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []
