"""What can stand against work on the volumes and snapshots of a project.

NoSuchVolume, NoSuchSnapshot   the project has none of that name
VolumeExists                   it has one of that name already (or a snapshot)
DatasetInUse                   a deletion or replacement would take data from somebody; the message names them
DatasetNotReady                what it is to be made from is not there yet, or not of that size
SnapshotsUnavailable           the cluster has no VolumeSnapshots
StorageQuotaExceeded           a ResourceQuota of the project's namespace refuses the volume
HalfReplaced                   the old volume is gone, and the new one could not be created
ProvisioningFailed             the provisioner said why it cannot be made; what was begun is deleted
StillPending                   it is being made, and was not ready in time
"""

from orchestrator.errors import MusterError


class NoSuchVolume(MusterError):
    """The project has no volume of that name."""


class NoSuchSnapshot(MusterError):
    """The project has no snapshot of that name."""


class VolumeExists(MusterError):
    """The project has a volume, or a snapshot, of that name already."""


class DatasetInUse(MusterError):
    """A deletion or replacement would take data from somebody; the message names them."""


class DatasetNotReady(MusterError):
    """What a volume is to be made from is not there yet, or cannot be made into what is wanted."""


class SnapshotsUnavailable(MusterError):
    """The cluster does not serve VolumeSnapshots."""


class StorageQuotaExceeded(MusterError):
    """A ResourceQuota of the project's namespace refuses the volume."""


class HalfReplaced(MusterError):
    """The old volume is gone, and the new one could not be created; the message has the command that does."""


class ProvisioningFailed(MusterError):
    """The storage cannot make what was asked for; nothing of it is left."""


class StillPending(MusterError):
    """What was asked for is being made, and was not ready in time."""
