"""Errors of operations on the volumes and snapshots of a project.

NoSuchVolume, NoSuchSnapshot   the project has no volume or snapshot of that name
VolumeExists                   the project has a volume or snapshot of that name already
DatasetInUse                   a deletion or replacement would remove data in use; the message names the users
DatasetNotReady                the source does not exist yet, or cannot become the requested volume
SnapshotsUnavailable           the cluster has no VolumeSnapshots
StorageQuotaExceeded           a ResourceQuota of the project's namespace refuses the volume
HalfReplaced                   the old volume is deleted, and the new one could not be created
ProvisioningFailed             the provisioner reported an error
StillPending                   the volume or snapshot is being created, and was not ready in time
"""

from orchestrator.errors import MusterError, TimedOut


class NoSuchVolume(MusterError):
    """The project has no volume of that name."""


class NoSuchSnapshot(MusterError):
    """The project has no snapshot of that name."""


class VolumeExists(MusterError):
    """The project has a volume, or a snapshot, of that name already."""


class DatasetInUse(MusterError):
    """A deletion or replacement would remove data that others use; the message names the users."""


class DatasetNotReady(MusterError):
    """The source of a volume does not exist yet, or cannot become the requested volume."""


class SnapshotsUnavailable(MusterError):
    """The cluster does not serve VolumeSnapshots."""


class StorageQuotaExceeded(MusterError):
    """A ResourceQuota of the project's namespace refuses the volume."""


class HalfReplaced(MusterError):
    """The old volume was deleted, and the new one could not be created; the message has the command that creates it."""


class ProvisioningFailed(MusterError):
    """The storage cannot create the requested object."""


class StillPending(TimedOut):
    """The requested object is being created, and was not ready in time."""
