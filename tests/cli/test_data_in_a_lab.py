"""`muster data` with a real API server, its quotas, its binder of volumes, and the shipped roles.

The storage is a double: it writes the objects of volumes and snapshots as external-provisioner and external-snapshotter
do, without data. The definition of VolumeSnapshot is the real one (`tests/client/snapshot_crds`).
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import PersistentVolumeClaim, VolumeSnapshot
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import (
    CLAIMS,
    EVENTS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    PODS,
    PROJECTS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    STORAGE_CLASSES,
    VOLUME_SNAPSHOTS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply, install
from tests.client.snapshot_definitions import apply_snapshot_definitions
from tests.cluster.waiting import DEADLINE_SECONDS, running
from tests.control.operators import muster, until_granted

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from musterlab.cluster import Lab

pytestmark = pytest.mark.lab

PROJECT = "datasets"
NAMESPACE = f"muster-{PROJECT}"
DRIVER = "hostpath.csi.k8s.io"
ROLES = {"ann": "muster-researcher", "vic": "muster-viewer"}
GROUP = "rbac.authorization.k8s.io"


class Storage:
    """Creates the volumes of PersistentVolumeClaims and the snapshots of the namespace, except those named
    `refused`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._changes: asyncio.Queue[PersistentVolumeClaim | VolumeSnapshot] = asyncio.Queue()
        self.claims = Reflector(
            transport, CLAIMS, PersistentVolumeClaim, namespace=NAMESPACE, on_change=self._see
        )
        self.snapshots = Reflector(
            transport, VOLUME_SNAPSHOTS, VolumeSnapshot, namespace=NAMESPACE, on_change=self._see
        )

    def _see(self, change: Change[Any]) -> None:
        if change.type == "added":
            self._changes.put_nowait(change.object)

    async def run(self) -> None:
        while True:
            added = await self._changes.get()
            name, uid = added.metadata.name, added.metadata.uid
            if isinstance(added, VolumeSnapshot):
                status = {
                    "readyToUse": True,
                    "restoreSize": "2Gi",
                    "boundVolumeSnapshotContentName": f"snap-{uid}",
                }
                path = VOLUME_SNAPSHOTS.path(NAMESPACE, name, "status")
                await self._transport.patch(path, {"status": status})
            elif name == "refused":
                await self._transport.create(EVENTS.path(NAMESPACE), warning_event(uid))
            elif not added.spec.volume_name:
                await self._transport.create(PERSISTENT_VOLUMES.path(), volume_of(added))


def warning_event(uid: str) -> dict[str, Any]:
    """Return the Event of external-provisioner 6.4.0 for a driver that cannot clone."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"refused-{uid}", "namespace": NAMESPACE},
        "involvedObject": {"kind": CLAIMS.kind, "name": "refused", "namespace": NAMESPACE, "uid": uid},
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported",
    }


def volume_of(claim: PersistentVolumeClaim) -> dict[str, Any]:
    metadata = claim.metadata
    assert claim.spec.resources is not None
    return {
        "apiVersion": PERSISTENT_VOLUMES.api_version,
        "kind": PERSISTENT_VOLUMES.kind,
        "metadata": {
            "name": f"pvc-{metadata.uid}",
            "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
        },
        "spec": {
            "storageClassName": claim.spec.storage_class_name,
            "capacity": claim.spec.resources.requests,
            "accessModes": claim.spec.access_modes,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "apiVersion": "v1",
                "kind": CLAIMS.kind,
                "namespace": NAMESPACE,
                "name": metadata.name,
                "uid": metadata.uid,
            },
            "csi": {"driver": DRIVER, "volumeHandle": metadata.uid},
        },
    }


class Site:
    """A project with a researcher, a viewer and storage."""

    def __init__(self, kubeconfig: Path, admin: Transport) -> None:
        self._kubeconfig = kubeconfig
        self.admin = admin

    async def run(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        who = ("--as", user, "--as-group", "system:authenticated", "-p", PROJECT)
        return await asyncio.to_thread(muster, self._kubeconfig, *who, "data", *words)

    async def must(self, *words: str) -> str:
        """Run a researcher's command, which must succeed; return its output."""
        done = await self.run("ann", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def refused(self, *words: str, user: str = "ann") -> str:
        """Run a command that must fail; return its error."""
        done = await self.run(user, *words)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        return done.stderr

    async def claim(self, name: str) -> dict[str, Any]:
        return await self.admin.get(CLAIMS.path(NAMESPACE, name))

    async def volumes(self) -> set[str]:
        return {volume["name"] for volume in json.loads(await self.must("volume", "list", "--json"))}


@pytest.fixture
async def site(shared_lab: Lab) -> AsyncIterator[Site]:
    async with Transport(load_access(shared_lab.kubeconfig)) as admin:
        await prepare(admin)
        storage = Storage(admin)
        async with (
            running(storage.claims.run()),
            running(storage.snapshots.run()),
            running(storage.run()),
        ):
            yield Site(shared_lab.kubeconfig, admin)
        await admin.delete(PROJECTS.path(name=PROJECT))
        await admin.delete(NAMESPACES.path(name=NAMESPACE))
        await gone(admin, NAMESPACES.path(name=NAMESPACE))


async def prepare(admin: Transport) -> None:
    await install(admin, "tests", replicas=0)
    await apply_snapshot_definitions(admin)
    project = {"apiVersion": PROJECTS.api_version, "kind": PROJECTS.kind, "metadata": {"name": PROJECT}}
    created = await apply(admin, {**project, "spec": {"gpu": {"quota": 0}}})
    owner = {**project, "name": PROJECT, "uid": created["metadata"]["uid"]}
    owner.pop("metadata")
    labels = {"muster.dev/project": PROJECT}
    metadata = {"name": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await apply(
        admin,
        {
            "apiVersion": STORAGE_CLASSES.api_version,
            "kind": STORAGE_CLASSES.kind,
            "metadata": {"name": "fast"},
            "provisioner": DRIVER,
        },
    )
    for user, role in ROLES.items():
        binding = {
            "apiVersion": ROLE_BINDINGS.api_version,
            "kind": ROLE_BINDINGS.kind,
            "metadata": {"name": user, "namespace": NAMESPACE},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
        }
        await apply(admin, binding)
        await until_granted(admin, user, "list", VOLUME_SNAPSHOTS, NAMESPACE)


async def gone(admin: Transport, path: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await admin.get(path)
            except NotFound:
                return
            await asyncio.sleep(0.05)


async def test_a_dataset_is_cloned_kept_and_restored_as_the_real_api_server_has_it(site: Site) -> None:
    await site.must("volume", "create", "data", "--size", "1000000001", "--storage-class", "fast")
    data = await site.claim("data")
    assert (data["status"]["phase"], data["spec"]["resources"]["requests"]) == (
        "Bound",
        {"storage": "1000000001"},
    )
    assert "Bound" in await site.must("volume", "clone", "data", "copy")
    source = {"apiGroup": None, "kind": CLAIMS.kind, "name": "data"}
    copy = await site.claim("copy")
    assert (copy["spec"]["dataSource"], copy["spec"]["dataSourceRef"]) == (source, source)
    assert copy["spec"]["resources"]["requests"] == {"storage": "1000000001"}
    assert "(Ready)" in await site.must("snapshot", "create", "data", "monday")
    assert "2Gi, Bound" in await site.must("snapshot", "restore", "monday", "back")
    back = await site.claim("back")
    assert back["spec"]["dataSourceRef"] == {
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": VOLUME_SNAPSHOTS.kind,
        "name": "monday",
    }

    message = await site.refused("volume", "delete", "data")
    assert "it has clones: copy; it has snapshots: monday" in message
    assert "volumes were restored from it: back" in await site.refused("snapshot", "delete", "monday")
    for kind, name in (("volume", "back"), ("snapshot", "monday"), ("volume", "copy"), ("volume", "data")):
        await site.must(kind, "delete", name)
        resource = CLAIMS if kind == "volume" else VOLUME_SNAPSHOTS
        await gone(site.admin, resource.path(NAMESPACE, name))
    assert await site.volumes() == set()


async def test_a_clone_made_by_hand_counts(site: Site) -> None:
    await site.must("volume", "create", "data", "--size", "1Gi", "--storage-class", "fast")
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": {"kind": CLAIMS.kind, "name": "data"},
    }
    body = {"apiVersion": "v1", "kind": CLAIMS.kind, "metadata": {"name": "by-hand"}, "spec": spec}
    await site.admin.create(CLAIMS.path(NAMESPACE), body)
    assert "it has clones: by-hand" in await site.refused("volume", "delete", "data")


async def test_an_unused_volume_is_replaced(site: Site) -> None:
    await site.must("volume", "create", "data", "--size", "1Gi", "--storage-class", "fast")
    await site.must("snapshot", "create", "data", "monday")
    pod = {
        "containers": [{"name": "m", "image": "none"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "schedulerName": "nobody",
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": pod}
    await site.admin.create(PODS.path(NAMESPACE), body)
    before = await site.claim("data")
    message = await site.refused("snapshot", "restore", "monday", "--replace")
    assert "it is used by pod reader" in message
    assert "it is used by pod reader" in await site.refused("volume", "delete", "data", "--force")
    assert (await site.claim("data"))["metadata"]["uid"] == before["metadata"]["uid"]

    await site.admin.delete(PODS.path(NAMESPACE, "reader"), grace_seconds=0)
    assert "2Gi, Bound" in await site.must("snapshot", "restore", "monday", "--replace")
    after = await site.claim("data")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["dataSource"]["name"] == "monday"


async def test_beyond_the_quota_of_storage_nothing_is_made_and_nothing_is_lost(site: Site) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": RESOURCE_QUOTAS.kind,
        "metadata": {"name": "muster-objects", "namespace": NAMESPACE},
        "spec": {"hard": {"requests.storage": "3Gi"}},
    }
    await apply(site.admin, quota)
    async with asyncio.timeout(DEADLINE_SECONDS):
        status: dict[str, Any] = {}
        while "used" not in status:
            status = (await site.admin.get(RESOURCE_QUOTAS.path(NAMESPACE, "muster-objects")))["status"]
    await site.must("volume", "create", "data", "--size", "2Gi", "--storage-class", "fast")
    await site.must("snapshot", "create", "data", "monday")
    before = await site.claim("data")
    for words in (
        ("volume", "clone", "data", "copy"),
        ("snapshot", "restore", "monday", "copy"),
        ("snapshot", "restore", "monday", "--replace"),
    ):
        message = await site.refused(*words)
        for word in ("requests.storage=3Gi", "used are requests.storage=2Gi", "--storage SIZE"):
            assert word in message
    assert await site.volumes() == {"data"}
    after = await site.claim("data")
    assert (after["metadata"]["uid"], after["metadata"].get("deletionTimestamp")) == (
        before["metadata"]["uid"],
        None,
    )


async def test_a_volume_that_the_storage_cannot_clone_is_deleted_again(site: Site) -> None:
    await site.must("volume", "create", "data", "--size", "1Gi", "--storage-class", "fast")
    message = await site.refused("volume", "clone", "data", "refused")
    assert "CLONE_VOLUME capability is not reported" in message
    await gone(site.admin, CLAIMS.path(NAMESPACE, "refused"))


async def test_viewers_see_data_and_change_nothing(site: Site) -> None:
    await site.must("volume", "create", "data", "--size", "1Gi", "--storage-class", "fast")
    await site.must("snapshot", "create", "data", "monday")
    for kind, name in (("volume", "data"), ("snapshot", "monday")):
        shown = await site.run("vic", kind, "list", "--no-headers")
        assert shown.stdout.split()[0] == name
        message = await site.refused(kind, "delete", name, "--force", user="vic")
        assert "muster-researcher" in message
    assert "muster-researcher" in await site.refused("volume", "clone", "data", "copy", user="vic")
    assert "muster-researcher" in await site.refused("snapshot", "create", "data", "x", user="vic")
    assert await site.volumes() == {"data"}
    ann = load_access(site._kubeconfig, as_user="ann", as_groups=["system:authenticated"])
    async with Transport(ann) as researcher:
        for resource in (CLAIMS, VOLUME_SNAPSHOTS):
            with pytest.raises(Forbidden):
                await researcher.list(resource.path("default"), PersistentVolumeClaim)
