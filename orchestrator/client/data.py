"""The volumes and snapshots of projects: create, clone, restore, delete.

Their model: `orchestrator.submit.datasets`.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.client.data_checks import (
    check_class_name,
    check_name,
    check_size,
    check_within_project,
    listed,
)
from orchestrator.client.data_errors import (
    DatasetInUse,
    DatasetNotReady,
    HalfReplaced,
    NoSuchSnapshot,
    NoSuchVolume,
    SnapshotsUnavailable,
    StorageQuotaExceeded,
    VolumeExists,
)
from orchestrator.client.data_waits import READY_SECONDS, Wait
from orchestrator.cluster.errors import AlreadyExists, ClusterError, Forbidden, NotFound
from orchestrator.cluster.objects import (
    Job,
    PersistentVolumeClaim,
    Pod,
    StatefulSet,
    StorageClass,
    VolumeSnapshot,
)
from orchestrator.cluster.quantity import format_bytes
from orchestrator.cluster.resources import (
    CLAIMS,
    JOBS,
    PODS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_SNAPSHOTS,
    Resource,
)
from orchestrator.errors import InvalidField
from orchestrator.submit import datasets
from orchestrator.submit.datasets import Datasets, DataSource, NewVolume, Snapshot, Volume

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.transport import Transport
    from orchestrator.submit.values import NewClaim

_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<quota>\S+), requested: (?P<requested>.+), used: (?P<used>.+), limited: (?P<limit>.+)"
)
_NO_CSI: Final = "kubernetes.io/"
"""Prefix of provisioners that cannot clone: those built into Kubernetes, and `no-provisioner`."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Maximum wait for an object in seconds (0: no wait), and the function that gets lines about the wait."""

    seconds: float = READY_SECONDS
    report: Callable[[str], None] = lambda _: None


class DataClient:
    """The volumes and snapshots of projects behind one API server. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def volumes(self, scope: Scope) -> list[Volume]:
        """Return the volumes of a project by name."""
        return datasets.volumes(await self._datasets(scope))

    async def snapshots(self, scope: Scope) -> list[Snapshot]:
        """Return the snapshots of a project by name. Raises SnapshotsUnavailable."""
        return datasets.snapshots(await self._datasets(scope, with_snapshots=True))

    async def create_volume(
        self, scope: Scope, volume: NewVolume, patience: Patience, *, replaces: str = ""
    ) -> Volume:
        """Create a volume; return it when it is bound, or waits for its first pod.

        If its provisioner cannot create it, the volume is deleted again. Exception: it replaces a deleted volume (with
        the uid `replaces`). Raises VolumeExists, StorageQuotaExceeded, ProvisioningFailed, StillPending.
        """
        check_name("volume", volume.name)
        if volume.source is None and volume.storage_class:
            await self._check_class_exists(volume.storage_class)
        created = await self._create(CLAIMS, datasets.claim_manifest(volume, scope.namespace), scope)
        if patience.seconds:
            wait = Wait(self._transport, patience.seconds, patience.report)
            await wait.for_volume(scope.namespace, volume.name, created["metadata"]["uid"], undo=not replaces)
        return _volume(await self.volumes(scope), volume.name, scope)

    async def clone_volume(
        self,
        scope: Scope,
        source: str,
        name: str,
        patience: Patience,
        *,
        size_bytes: int = 0,
        storage_class: str | None = None,
    ) -> Volume:
        """Create a volume with the bytes of the volume `source`; size and class are by default copied from `source`.

        Raises NoSuchVolume, DatasetNotReady and the errors of `create_volume`.
        """
        new = await self.clone_of(scope, source, name, size_bytes=size_bytes, storage_class=storage_class)
        return await self.create_volume(scope, new, patience)

    async def clone_of(
        self, scope: Scope, source: str, name: str, *, size_bytes: int = 0, storage_class: str | None = None
    ) -> NewVolume:
        """Return the description of a clone of the volume `source`, after the checks that are possible before its
        creation.
        """
        check_within_project(source)
        origin = _volume(await self.volumes(scope), source, scope)
        if origin.status != datasets.BOUND:
            raise DatasetNotReady(
                f"the volume {source} is {origin.status}: only a Bound volume can be cloned. If its class "
                "binds late (WaitForFirstConsumer), let a job mount it first"
            )
        size_bytes = size_bytes or origin.size_bytes
        check_size(size_bytes, origin.size_bytes, f"the volume {source}")
        await self._check_class(origin.storage_class, storage_class, f"the volume {source}")
        return NewVolume(
            name,
            size_bytes,
            storage_class or origin.storage_class,
            origin.access_modes,
            origin.volume_mode,
            DataSource(CLAIMS.kind, source),
        )

    async def filled_clone(self, scope: Scope, claim: NewClaim) -> NewClaim:
        """Return a workload's PVC with the properties of the volume that it clones, if it is a clone."""
        if not claim.clone_of or claim.size_bytes:
            return claim
        volume = await self.clone_of(scope, claim.clone_of, claim.clone_of)
        if volume.volume_mode != "Filesystem":
            raise DatasetNotReady(
                f"the volume {claim.clone_of} is a block device; only a volume with "
                "a file system can be mounted at a path"
            )
        return replace(
            claim,
            size_bytes=volume.size_bytes,
            storage_class=volume.storage_class or "",
            access_mode=volume.access_modes[0],
        )

    async def delete_volume(self, scope: Scope, name: str, *, force: bool = False) -> None:
        """Delete a volume without users, clones and snapshots (`force`: even with clones and snapshots).

        Raises NoSuchVolume, DatasetInUse.
        """
        volume = _volume(datasets.volumes(await self._datasets(scope)), name, scope)
        if why := datasets.objection_to_deletion(volume, force=force):
            raise DatasetInUse(f"the volume {name} is not deleted: {why}")
        await self._transport.delete(CLAIMS.path(scope.namespace, name), uid=volume.uid)

    async def create_snapshot(
        self, scope: Scope, volume: str, name: str, patience: Patience, *, snapshot_class: str | None = None
    ) -> Snapshot:
        """Take a snapshot of a volume; return it when it can be restored.

        If the storage cannot create it, the snapshot is deleted again. Raises NoSuchVolume, SnapshotsUnavailable,
        DatasetNotReady, ProvisioningFailed, StillPending.
        """
        check_name("snapshot", name)
        check_within_project(volume)
        held = await self._datasets(scope, with_snapshots=True)
        origin = _volume(datasets.volumes(held), volume, scope)
        if origin.status != datasets.BOUND:
            raise DatasetNotReady(
                f"the volume {volume} is {origin.status}: only a Bound volume has data for a snapshot"
            )
        manifest = datasets.snapshot_manifest(name, volume, scope.namespace, snapshot_class)
        created = await self._create(VOLUME_SNAPSHOTS, manifest, scope)
        if patience.seconds:
            wait = Wait(self._transport, patience.seconds, patience.report)
            await wait.for_snapshot(scope.namespace, name, created["metadata"]["uid"])
        return _snapshot(await self.snapshots(scope), name, scope)

    async def delete_snapshot(self, scope: Scope, name: str, *, force: bool = False) -> None:
        """Delete a snapshot. Raises DatasetInUse if a volume was restored from it, unless `force`."""
        snapshot = _snapshot(await self.snapshots(scope), name, scope)
        if snapshot.restored and not force:
            raise DatasetInUse(
                f"the snapshot {name} is not deleted: volumes were restored from it: "
                f"{', '.join(snapshot.restored)}"
            )
        await self._transport.delete(VOLUME_SNAPSHOTS.path(scope.namespace, name), uid=snapshot.uid)

    async def restore_snapshot(
        self,
        scope: Scope,
        name: str,
        target: str | None,
        patience: Patience,
        *,
        replace_volume: bool = False,
        size_bytes: int = 0,
        storage_class: str | None = None,
    ) -> Volume:
        """Restore a snapshot to a new volume named `target`, or with `replace_volume` to an existing volume.

        If `target` is None, the new volume gets the name of the snapshot's volume. A replaced volume must have no
        users, and all checks are made before its deletion. Raises NoSuchSnapshot, DatasetNotReady, DatasetInUse,
        HalfReplaced and the errors of `create_volume`.
        """
        held = await self._datasets(scope, with_snapshots=True)
        snapshot = _snapshot(datasets.snapshots(held), name, scope)
        target = target or snapshot.volume
        check_name("volume", target)
        if snapshot.status != datasets.READY:
            raise DatasetNotReady(
                f"the snapshot {name} is {snapshot.status}: {snapshot.problem or 'wait until it is Ready'}"
            )
        known = {volume.name: volume for volume in datasets.volumes(held)}
        old = known.get(target)
        if old is not None and not replace_volume:
            raise _exists("volume", target)
        model = old or known.get(snapshot.volume)
        least_bytes = snapshot.size_bytes or (model.size_bytes if model else 0)
        size_bytes = size_bytes or max(least_bytes, old.size_bytes if old else 0)
        if not size_bytes:
            raise InvalidField("{size_bytes} is missing: the size of snapshot {name} is not known", name=name)
        check_size(size_bytes, least_bytes, f"the snapshot {name}")
        await self._check_class(model.storage_class if model else None, storage_class, f"the snapshot {name}")
        new = NewVolume(target, size_bytes, storage_class, source=DataSource(VOLUME_SNAPSHOTS.kind, name))
        if model is not None:
            new = replace(
                new,
                storage_class=storage_class or model.storage_class,
                access_modes=model.access_modes,
                volume_mode=model.volume_mode,
            )
        if old is None:
            return await self.create_volume(scope, new, patience)
        if why := datasets.objection_to_replacement(old, held):
            raise DatasetInUse(f"the volume {target} is not replaced: {why}")
        return await self._replace(scope, old, new, patience)

    async def _replace(self, scope: Scope, old: Volume, new: NewVolume, patience: Patience) -> Volume:
        """Delete a volume and create a new volume of the same name.

        Before the deletion, the server must accept the new volume in a dry run.
        """
        by_hand, manifest = _restore_command(new, scope), datasets.claim_manifest(new, scope.namespace)
        try:
            await self._create(CLAIMS, manifest, scope, params={"dryRun": "All"})
        except VolumeExists:
            patience.report(f"the API server accepts the new volume {new.name}")
        await self._transport.delete(CLAIMS.path(scope.namespace, old.name), uid=old.uid)
        wait = Wait(self._transport, patience.seconds or READY_SECONDS, patience.report)
        if not await wait.until_deleted(scope.namespace, old.name, old.uid):
            raise HalfReplaced(
                f"the volume {old.name} is being deleted, but a pod has begun to use it: when the pod has "
                f"ended, run {by_hand}"
            )
        try:
            return await self.create_volume(scope, new, patience, replaces=old.uid)
        except (ClusterError, VolumeExists, StorageQuotaExceeded) as error:
            raise HalfReplaced(
                f"the volume {old.name} is deleted, and the new one is not created: {error}; run {by_hand}"
            ) from error

    async def _datasets(self, scope: Scope, *, with_snapshots: bool = False) -> Datasets:
        """Return the project's volumes, snapshots and their users.

        If `with_snapshots` is set and the cluster serves no VolumeSnapshots, raises SnapshotsUnavailable.
        """
        namespace = scope.namespace
        claims, snapshots, pods, jobs, stateful_sets = await asyncio.gather(
            self._transport.list(CLAIMS.path(namespace), PersistentVolumeClaim),
            self._snapshots(namespace, must_be_served=with_snapshots),
            self._transport.list(PODS.path(namespace), Pod),
            self._transport.list(JOBS.path(namespace), Job),
            self._transport.list(STATEFUL_SETS.path(namespace), StatefulSet),
        )
        return Datasets(claims.items, snapshots, pods.items, jobs.items, stateful_sets.items)

    async def _snapshots(self, namespace: str, *, must_be_served: bool) -> Sequence[VolumeSnapshot]:
        try:
            page = await self._transport.list(VOLUME_SNAPSHOTS.path(namespace), VolumeSnapshot)
        except NotFound as error:
            if must_be_served:
                raise SnapshotsUnavailable(
                    "this cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1): an administrator installs the "
                    "definitions and the snapshot controller of kubernetes-csi/external-snapshotter, and a "
                    "VolumeSnapshotClass of the storage driver"
                ) from error
            return ()
        return page.items

    async def _create(
        self, resource: Resource, manifest: dict[str, Any], scope: Scope, params: Any = None
    ) -> dict[str, Any]:
        name = manifest["metadata"]["name"]
        try:
            created: dict[str, Any] = await self._transport.create(
                resource.path(scope.namespace), manifest, params=params
            )
        except AlreadyExists as error:
            raise _exists("volume" if resource is CLAIMS else "snapshot", name) from error
        except Forbidden as error:
            quota = _QUOTA.search(error.message)
            if quota is None:
                raise
            raise StorageQuotaExceeded(
                f"project {scope.project} may not have the volume {name}: its quota {quota['quota']} is "
                f"{quota['limit']}, used are {quota['used']}, and this asks for {quota['requested']}. Delete volumes, "
                f"or ask an administrator to raise it: 'muster project update {scope.project} --storage SIZE'"
            ) from error
        return created

    async def _check_class_exists(self, name: str) -> None:
        """Raise DatasetNotReady if there is no storage class of that name.

        Without the right to read storage classes, nothing is checked.
        """
        check_class_name(name)
        with suppress(Forbidden):
            try:
                await self._transport.get(STORAGE_CLASSES.path(name=name), StorageClass)
            except NotFound as error:
                raise DatasetNotReady(
                    f"there is no storage class {name}: 'kubectl get storageclasses' lists them"
                ) from error

    async def _check_class(self, of_source: str | None, wanted: str | None, subject: str) -> None:
        """Check that a storage class can create a volume from a source. Raises DatasetNotReady.

        Without the right to read storage classes, the provisioner reports the error during the wait.
        """
        if wanted:
            check_class_name(wanted)
        try:
            source, target = [
                await self._transport.get(STORAGE_CLASSES.path(name=name), StorageClass) if name else None
                for name in (of_source, wanted or of_source)
            ]
        except Forbidden:
            return
        except NotFound as error:
            raise DatasetNotReady(
                f"{subject} cannot be made into a new volume: there is no storage class {wanted or of_source}; "
                "'kubectl get storageclasses' lists them, --storage-class chooses one"
            ) from error
        if target is None or target.provisioner.startswith(_NO_CSI):
            provisioner = target.provisioner if target else "none"
            raise DatasetNotReady(
                f"{subject} cannot be made into a new volume: the provisioner of its storage class, {provisioner}, "
                "cannot clone. Use a class of a CSI driver that can, such as Trident"
            )
        if source is not None and source.provisioner != target.provisioner:
            raise DatasetNotReady(
                f"{subject} is kept by {source.provisioner}, and the storage class {wanted} is one of "
                f"{target.provisioner}: choose a class of the same provisioner"
            )


def _volume(views: Sequence[Volume], name: str, scope: Scope) -> Volume:
    for volume in views:
        if volume.name == name:
            return volume
    raise NoSuchVolume(
        f"project {scope.project} has no volume {name}; there are: {listed(views)}. "
        "Clones and snapshots stay within a project"
    )


def _snapshot(views: Sequence[Snapshot], name: str, scope: Scope) -> Snapshot:
    for snapshot in views:
        if snapshot.name == name:
            return snapshot
    raise NoSuchSnapshot(f"project {scope.project} has no snapshot {name}; there are: {listed(views)}")


def _exists(kind: str, name: str) -> VolumeExists:
    return VolumeExists(f"there is a {kind} {name} already: choose another name, or delete it first")


def _restore_command(new: NewVolume, scope: Scope) -> str:
    source = new.source.name if new.source else ""
    size, kind = (
        format_bytes(new.size_bytes),
        f" --storage-class {new.storage_class}" if new.storage_class else "",
    )
    return f"'muster data snapshot restore {source} {new.name} --size {size}{kind} -p {scope.project}'"
