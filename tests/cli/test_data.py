"""`muster data`: volumes, clones and snapshots of a project, and all refusals (`client/data.py`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.client.data_waits import Wait
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import VOLUME_SNAPSHOT_CLASSES, VOLUME_SNAPSHOTS, Resource
from orchestrator.cluster.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
CLONE_OF_DATA = {
    "accessModes": ["ReadWriteMany"],
    "volumeMode": "Filesystem",
    "resources": {"requests": {"storage": "10Gi"}},
    "storageClassName": "fast",
    "dataSource": {"kind": "PersistentVolumeClaim", "name": "data"},
}
"""The specification of a clone of the volume `data` in the fixture `storage`: of the same size and class."""
CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
GIB = 1 << 30


def claim(
    name: str,
    size: str = "10Gi",
    *,
    namespace: str = NAMESPACE,
    phase: str = "Bound",
    created: str = EARLY,
    source: dict[str, str] | None = None,
    storage_class: str = "fast",
) -> dict[str, Any]:
    """Return a PersistentVolumeClaim as the API server stores it; `source` is its `dataSource`."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": storage_class,
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": size}},
    }
    sources = {"dataSource": source, "dataSourceRef": source} if source else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": spec | sources,
        "status": {"phase": phase, **({"capacity": {"storage": size}} if phase == "Bound" else {})},
    }


def of_claim(name: str, **more: str) -> dict[str, str]:
    return {"kind": "PersistentVolumeClaim", "name": name, **more}


def of_snapshot(name: str) -> dict[str, str]:
    return {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}


def snapshot(name: str, volume: str, *, created: str = LATE, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": NAMESPACE, "creationTimestamp": created},
        "spec": {"source": {"persistentVolumeClaimName": volume}},
        "status": status or {"readyToUse": True, "restoreSize": "10Gi"},
    }


def storage_class(name: str, provisioner: str = "csi.trident.netapp.io") -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
    }


def snapshot_class() -> dict[str, Any]:
    return {
        "apiVersion": VOLUME_SNAPSHOT_CLASSES.api_version,
        "kind": VOLUME_SNAPSHOT_CLASSES.kind,
        "metadata": {"name": "gold"},
        "driver": "csi.trident.netapp.io",
        "deletionPolicy": "Delete",
    }


def pod_with(volume: str, *, phase: str = "Running", name: str = "reader") -> dict[str, Any]:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": volume}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [], "volumes": volumes},
        "status": {"phase": phase},
    }


@pytest.fixture
def storage(server: MemoryApiServer) -> MemoryApiServer:
    """Return a server with a volume `data` of team-a, a class whose driver clones, and VolumeSnapshots."""
    server.serve(VOLUME_SNAPSHOTS)
    server.add(claim("data"), storage_class("fast"), storage_class("local", "kubernetes.io/no-provisioner"))
    return server


def test_a_volume_has_exactly_the_bytes_that_were_asked_for(muster: Muster, storage: MemoryApiServer) -> None:
    words = ("--size", "1000000001", "--access-mode", "ReadWriteMany", "--no-wait")
    done = muster("data", "volume", "create", "new", *words, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json | {"uid": "", "createdAt": ""} == {
        "project": "team-a",
        "namespace": NAMESPACE,
        "name": "new",
        "uid": "",
        "status": "Pending",
        "sizeBytes": 1000000001,
        "storageClass": None,
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Filesystem",
        "createdAt": "",
        "source": None,
        "clones": [],
        "snapshots": [],
        "usedBy": [],
    }
    claim = storage.find("persistentvolumeclaims", "new", NAMESPACE)
    assert claim is not None
    assert claim["spec"]["resources"]["requests"]["storage"] == "1000000001"


def test_a_clone_is_as_large_and_of_the_same_class_as_its_source(
    muster: Muster, storage: MemoryApiServer
) -> None:
    done = muster("data", "volume", "clone", "data", "copy", "--no-wait")
    assert (done.code, done.out) == (0, "Volume copy has been cloned from data (10Gi, Pending)\n")
    claim = storage.find("persistentvolumeclaims", "copy", NAMESPACE)
    assert claim is not None
    assert claim["spec"] == CLONE_OF_DATA


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("volume", "clone", "nowhere", "copy"), "project team-a has no volume nowhere; there are: data"),
        (("volume", "clone", "team-b/secret", "copy"), "stay within a project"),
        (("volume", "clone", "secret", "copy"), "project team-a has no volume secret"),
        (("snapshot", "create", "team-b/secret", "s"), "stay within a project"),
        (("volume", "clone", "data", "data"), "there is a volume data already"),
        (("volume", "clone", "data", "copy", "--size", "9Gi"), "--size 9Gi is not possible"),
        (("volume", "clone", "data", "copy", "--storage-class", "local"), "kubernetes.io/no-provisioner"),
        (("volume", "clone", "data", "copy", "--storage-class", "none"), "there is no storage class none"),
        (("volume", "clone", "data", "Copy"), "the volume name 'Copy' is not possible"),
        (
            ("volume", "clone", "data", "copy", "--storage-class", "../../x"),
            "--storage-class '../../x' is not",
        ),
        (("volume", "clone", "data", "c" * 254), "use at most 253 lower case"),
        (("volume", "create", "x", "--size", "1Gi", "--storage-class", "--"), "--storage-class '--' is not"),
        (("volume", "create", "x", "--size", "1Gi", "--storage-class", "none"), "is no storage class none"),
        (("volume", "create", "x", "--size", "0"), "--size '0' is not possible: it must be above 0"),
        (("volume", "create", "x", "--size", "ten"), "--size 'ten' is not an amount"),
        (("volume", "delete", "nowhere"), "has no volume nowhere"),
        (("snapshot", "restore", "s"), "the new volume is missing: give its name, or --replace"),
        (("snapshot", "restore", "s", "x"), "has no snapshot s"),
        (("snapshot", "delete", "s"), "has no snapshot s"),
    ],
)
def test_impossible_operations_are_refused_before_anything_is_written(
    words: tuple[str, ...], problem: str, muster: Muster, storage: MemoryApiServer
) -> None:
    storage.add(claim("secret", namespace="people-of-b"))
    done = muster("data", *words, *(() if words[1] == "delete" else ("--no-wait",)))
    assert done.code in (1, 2)
    assert problem in done.err
    assert (done.out, done.err.count("\n")) == ("", 1)
    # in this case the API server refuses the write
    wrote = [("POST", CLAIMS)] if "already" in problem else []
    assert storage.writes() == wrote
    assert len(storage.all("persistentvolumeclaims")) == 2


def test_a_class_of_another_provisioner_cannot_keep_a_clone(muster: Muster, storage: MemoryApiServer) -> None:
    storage.add(storage_class("other", "hostpath.csi.k8s.io"))
    done = muster("data", "volume", "clone", "data", "copy", "--storage-class", "other")
    assert done.code == 1
    assert "is kept by csi.trident.netapp.io, and the storage class other is one of hostpath" in done.err


def test_a_volume_with_clones_and_snapshots_is_not_deleted_and_they_are_named(
    muster: Muster, storage: MemoryApiServer
) -> None:
    storage.add(
        claim("by-hand", created=LATE, source=of_claim("data")),
        claim("copy", created=LATE, source=of_claim("data")),
        snapshot("monday", "data"),
    )
    done = muster("data", "volume", "delete", "data")
    assert (done.code, done.err) == (
        1,
        "Error: the volume data is not deleted: it has clones: by-hand, copy; it has snapshots: monday\n",
    )
    assert storage.writes() == []
    assert muster("data", "volume", "delete", "data", "--force").code == 0
    assert storage.find("persistentvolumeclaims", "data", NAMESPACE) is None


def test_clones_of_an_earlier_volume_of_that_name_block_no_deletion(
    muster: Muster, storage: MemoryApiServer
) -> None:
    earlier = "2025-01-01T00:00:00Z"
    storage.add(
        claim("copy", created=earlier, source=of_claim("data")),
        snapshot("old", "data", created=earlier),
        claim("elsewhere", created=LATE, source=of_claim("data", namespace="people-of-b")),
    )
    assert muster("data", "volume", "delete", "data").out == "Volume data has been deleted\n"


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_used_volume_is_not_deleted(
    force: tuple[str, ...], muster: Muster, storage: MemoryApiServer
) -> None:
    on_node = pod_with("data", phase="Succeeded", name="reader-1")
    on_node["spec"]["nodeName"] = "dgx1-1"
    leaving = pod_with("data", phase="Succeeded", name="reader-2")
    leaving["spec"]["nodeName"] = "dgx1-1"
    leaving["metadata"]["deletionTimestamp"] = LATE
    storage.add(pod_with("data"), pod_with("data", phase="Failed", name="never-started"), on_node, leaving)
    muster("submit", "later", "-i", "image", "--pvc", "data:/data")
    muster("suspend", "later")
    done = muster("data", "volume", "delete", "data", *force)
    assert done.code == 1
    assert "is used by job later, pod reader, pod reader-1 (ended): delete that first" in done.err


def test_the_list_shows_the_source_of_each_volume(muster: Muster, storage: MemoryApiServer) -> None:
    storage.add(
        claim("copy", created=LATE, source=of_claim("data")),
        claim("back", "12Gi", created=LATE, source=of_snapshot("monday")),
        snapshot("monday", "data"),
        snapshot("bad", "data", readyToUse=False, error={"message": "no room"}),
        pod_with("copy"),
    )
    assert muster("data", "volume", "list").lines == [
        "NAME  STATUS  SIZE  STORAGE CLASS  ACCESS  MADE FROM        CLONES  SNAPSHOTS   USED BY",
        "back  Bound   12Gi  fast           RWX     snapshot monday  -       -",
        "copy  Bound   10Gi  fast           RWX     volume data      -       -           pod reader",
        "data  Bound   10Gi  fast           RWX     -                copy    bad,monday",
    ]
    assert [line.split() for line in muster("data", "snapshot", "list", "--no-headers").lines] == [
        ["bad", "Failed", "data", "-", LATE, "-", "no", "room"],
        ["monday", "Ready", "data", "10Gi", LATE, "back"],
    ]
    shown = muster("data", "snapshot", "list", "--json").json
    assert [(each["name"], each["sizeBytes"], each["restored"]) for each in shown] == [
        ("bad", None, []),
        ("monday", 10 * GIB, ["back"]),
    ]


def test_without_the_definitions_of_snapshots_volumes_work_and_snapshots_name_the_missing_part(
    muster: Muster, server: MemoryApiServer
) -> None:
    server.add(claim("data"))
    assert muster("data", "volume", "list", "--no-headers").lines[0].startswith("data  Bound")
    for words in (("list",), ("create", "data", "s"), ("restore", "s", "x"), ("delete", "s")):
        done = muster("data", "snapshot", *words)
        assert done.code == 1
        assert "this cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1)" in done.err
        assert "external-snapshotter" in done.err


def test_a_user_without_a_right_to_snapshots_deletes_no_volume(
    muster: Muster, storage: MemoryApiServer
) -> None:
    path = VOLUME_SNAPSHOTS.path(NAMESPACE)
    storage.refuse("GET", path, 403, "Forbidden")
    done = muster("data", "volume", "delete", "data")
    assert done.code == 1
    assert "list volumesnapshots in namespace muster-team-a; the role muster-viewer allows it" in done.err
    assert storage.writes() == []


def test_a_snapshot_is_taken_and_restored_to_a_new_volume(muster: Muster, storage: MemoryApiServer) -> None:
    done = muster("data", "snapshot", "create", "data", "monday", "--no-wait")
    assert (done.code, done.out) == (0, "Snapshot monday of volume data has been created (Pending)\n")
    done = muster("data", "snapshot", "restore", "monday", "back")
    assert done.code == 1
    assert "the snapshot monday is Pending: wait until it is Ready" in done.err
    snapshot = storage.find("volumesnapshots", "monday", NAMESPACE)
    assert snapshot is not None
    assert snapshot["spec"] == {"source": {"persistentVolumeClaimName": "data"}}
    snapshot["status"] = {"readyToUse": True, "restoreSize": "11Gi"}
    assert muster("data", "snapshot", "restore", "monday", "back", "--no-wait").code == 0
    restored = storage.find("persistentvolumeclaims", "back", NAMESPACE)
    assert restored is not None
    assert restored["spec"]["dataSource"] == of_snapshot("monday")
    assert restored["spec"]["resources"]["requests"]["storage"] == "11Gi"
    assert restored["spec"]["accessModes"] == ["ReadWriteMany"]
    done = muster("data", "snapshot", "delete", "monday")
    assert "volumes were restored from it: back" in done.err
    assert muster("data", "snapshot", "delete", "monday", "--force").code == 0


def test_a_volume_of_that_name_is_replaced_only_on_request(muster: Muster, storage: MemoryApiServer) -> None:
    storage.add(snapshot("monday", "data"))
    before = storage.find("persistentvolumeclaims", "data", NAMESPACE)
    assert before is not None
    done = muster("data", "snapshot", "restore", "monday", "data", "--no-wait")
    assert "there is a volume data already" in done.err
    assert storage.writes() == []
    done = muster("data", "snapshot", "restore", "monday", "--replace", "--no-wait")
    assert (done.code, done.out) == (
        0,
        "Volume data has been restored from snapshot monday (10Gi, Pending)\n",
    )
    after = storage.find("persistentvolumeclaims", "data", NAMESPACE)
    assert after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["dataSource"] == of_snapshot("monday")


@pytest.mark.parametrize(
    ("beside", "problem"),
    [
        (pod_with("data"), "is used by pod reader"),
        (claim("copy", phase="Pending", created=LATE, source=of_claim("data")), "copy is still being made"),
        (snapshot("now", "data", readyToUse=False), "now is still being made"),
    ],
)
def test_nothing_replaces_a_volume_in_use(
    beside: dict[str, Any], problem: str, muster: Muster, storage: MemoryApiServer
) -> None:
    storage.add(snapshot("monday", "data"), beside)
    done = muster("data", "snapshot", "restore", "monday", "--replace", "--no-wait")
    assert done.code == 1
    assert problem in done.err
    assert storage.writes() == []


def test_a_refusal_by_quota_names_the_quota_and_the_command_that_raises_it(
    muster: Muster, storage: MemoryApiServer
) -> None:
    words = (
        'persistentvolumeclaims "copy" is forbidden: exceeded quota: muster-objects, requested: '
        "requests.storage=10Gi, used: requests.storage=10Gi, limited: requests.storage=15Gi"
    )

    def admit(_token: str, method: str, path: str, _body: Any) -> tuple[int, dict[str, Any]] | None:
        status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": words}
        return (403, status) if (method, path) == ("POST", CLAIMS) else None

    storage.admit = admit
    storage.add(snapshot("monday", "data"))
    for command in (("volume", "clone", "data", "copy"), ("snapshot", "restore", "monday", "--replace")):
        done = muster("data", *command)
        assert done.code == 1
        assert "its quota muster-objects is requests.storage=15Gi, used are requests.storage=10Gi" in done.err
        assert "'muster project update team-a --storage SIZE'" in done.err
    assert storage.find("persistentvolumeclaims", "data", NAMESPACE) is not None
    assert storage.writes() == []


def test_a_clone_that_the_driver_cannot_make_is_not_left_half_done(
    muster: Muster, storage: MemoryApiServer
) -> None:
    """The message is that of external-provisioner 6.4.0 (pkg/controller/controller.go), in an Event."""
    words = (
        'failed to provision volume with StorageClass "fast": CSI driver does not support clone operations: '
        "controller CLONE_VOLUME capability is not reported"
    )

    def admit(_token: str, method: str, path: str, body: Any) -> None:
        if (method, path) == ("POST", CLAIMS):
            body["metadata"]["uid"] = "uid-of-copy"
            storage.add(event("uid-of-copy", "ProvisioningFailed", words))

    storage.admit = admit
    done = muster("data", "volume", "clone", "data", "copy")
    assert done.code == 1
    assert "the storage cannot create volume copy, which was deleted again" in done.err
    assert "CLONE_VOLUME" in done.err
    assert storage.find("persistentvolumeclaims", "copy", NAMESPACE) is None


def test_a_volume_that_waits_for_its_first_pod_is_not_waited_for(
    muster: Muster, storage: MemoryApiServer
) -> None:
    def admit(_token: str, method: str, path: str, body: Any) -> None:
        if (method, path) == ("POST", CLAIMS):
            body["metadata"]["uid"] = "uid-of-new"
            storage.add(event("uid-of-new", "WaitForFirstConsumer", "waiting", kind="Normal"))

    storage.admit = admit
    done = muster("data", "volume", "create", "new", "--size", "1Gi")
    assert (done.code, done.out) == (0, "Volume new has been created (1Gi, Pending)\n")
    assert done.err == "volume new is being made …\n"


def test_a_slow_operation_is_kept_and_continues(muster: Muster, storage: MemoryApiServer) -> None:
    done = muster("data", "volume", "clone", "data", "copy", "--timeout", "3s")
    assert done.code == 124
    assert "is not ready after 3 seconds, and is still being created" in done.err
    assert storage.find("persistentvolumeclaims", "copy", NAMESPACE) is not None


async def test_a_user_without_patience_is_told_how_to_give_it_up(
    storage: MemoryApiServer, kubeconfig: Path
) -> None:
    storage.add(claim("slow", phase="Pending"))
    lines: list[str] = []
    is_waiting = asyncio.Event()

    def report(line: str) -> None:
        lines.append(line)
        is_waiting.set()

    async with Transport(load_access(kubeconfig)) as transport:
        waiting = asyncio.create_task(Wait(transport, 60, report).for_volume(NAMESPACE, "slow", "uid"))
        await is_waiting.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert lines[-1].endswith("cancel it with 'muster data volume delete slow'")
    assert storage.find("persistentvolumeclaims", "slow", NAMESPACE) is not None


def test_of_many_volumes_the_first_are_named(muster: Muster, storage: MemoryApiServer) -> None:
    storage.add(*(claim(f"many-{number:03d}") for number in range(300)))
    done = muster("data", "volume", "delete", "nowhere")
    assert "many-018, and 281 more" in done.err
    assert len(muster("data", "volume", "list", "--json").json) == 301


def event(uid: str, reason: str, message: str, *, kind: str = "Warning") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{uid}", "namespace": NAMESPACE},
        "involvedObject": {"uid": uid},
        "type": kind,
        "reason": reason,
        "message": message,
    }


def test_a_job_has_a_clone_of_its_own_that_is_deleted_with_it(
    muster: Muster, storage: MemoryApiServer
) -> None:
    done = muster(
        "submit", "train", "-i", "image", "--clone-of", "data:/work", "--pvc-new", "size=1Gi,path=/tmp"
    )
    assert (done.code, done.err) == (0, "")
    claim = storage.find("persistentvolumeclaims", "pvc-train-1", NAMESPACE)
    assert claim is not None
    assert claim["spec"] == CLONE_OF_DATA
    job = storage.find("jobs", "train", NAMESPACE)
    assert job is not None
    mounts = job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "volume-1", "mountPath": "/work"} in mounts
    claim["metadata"]["creationTimestamp"] = LATE
    assert "it has clones: pvc-train-1" in muster("data", "volume", "delete", "data").err
    assert muster("delete", "train").code == 0
    assert muster("data", "volume", "delete", "data").code == 0


WITH_SNAPSHOTS = ("submit", "train", "-i", "image", "--pvc", "data:/work", "--snapshot-on-success")


def test_a_job_says_that_its_volumes_are_to_be_kept_and_shows_their_snapshots(
    muster: Muster, storage: MemoryApiServer
) -> None:
    storage.serve(VOLUME_SNAPSHOT_CLASSES)
    storage.add(snapshot_class())
    done = muster(*WITH_SNAPSHOTS)
    assert (done.code, done.err) == (0, "")
    job = storage.find("jobs", "train", NAMESPACE)
    assert job is not None
    annotations = job["metadata"]["annotations"]
    assert annotations["muster.dev/snapshot-on-success"] == "true"
    assert "SNAPSHOTS" not in muster("get", "train").out
    annotations["muster.dev/snapshots"] = "train-0-0a1b2c3d"
    assert "SNAPSHOTS: train-0-0a1b2c3d" in muster("get", "train").out
    assert muster("get", "train", "-o", "json").json["snapshots"] == ["train-0-0a1b2c3d"]


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ((), "this cluster has no VolumeSnapshots: an administrator installs external-snapshotter"),
        ((VOLUME_SNAPSHOTS, VOLUME_SNAPSHOT_CLASSES), "this cluster has no VolumeSnapshotClass: an admin"),
    ],
)
def test_a_volume_that_no_cluster_could_keep_is_refused_when_it_is_submitted(
    kinds: tuple[Resource, ...], problem: str, muster: Muster, server: MemoryApiServer
) -> None:
    server.add(claim("data"))
    for kind in kinds:
        server.serve(kind)
    done = muster(*WITH_SNAPSHOTS)
    assert (done.code, done.out) == (1, "")
    assert f"--snapshot-on-success: {problem}" in done.err
    assert server.writes() == []


@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--dry-run=server",)])
def test_a_job_is_not_submitted_for_a_clone_of_a_missing_volume(
    how: tuple[str, ...], muster: Muster, storage: MemoryApiServer
) -> None:
    for source, problem in (
        ("nowhere", "project team-a has no volume nowhere"),
        ("team-b/secret", "--clone-of 'team-b/secret:/work' is not possible"),
    ):
        done = muster("submit", "train", "-i", "image", "--clone-of", f"{source}:/work", *how)
        assert done.code in (1, 2)
        assert problem in done.err
    assert storage.writes() == []


def test_a_dry_run_prints_the_clone_as_it_would_be(muster: Muster, storage: MemoryApiServer) -> None:
    done = muster("submit", "train", "-i", "image", "--clone-of", "data:/work", "--dry-run", "-o", "json")
    (body,) = (body for body in done.json["items"] if body["kind"] == "PersistentVolumeClaim")
    assert body["spec"]["resources"]["requests"] == {"storage": "10Gi"}
    assert storage.writes() == []


def test_a_workspace_is_a_notebook_on_a_clone_behind_an_ingress(
    muster: Muster, storage: MemoryApiServer
) -> None:
    words = ("data", "workspace", "create", "note", "--clone-of", "data", "-g", "0.5", "--dry-run")
    done = muster(*words)
    assert (done.code, done.err) == (0, "")
    bodies = {body["kind"]: body for body in yaml.safe_load_all(done.out)}
    assert bodies.keys() == {"StatefulSet", "PersistentVolumeClaim", "Service", "Ingress"}
    assert bodies["PersistentVolumeClaim"]["spec"]["dataSource"]["name"] == "data"
    template = bodies["StatefulSet"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "volume-0", "mountPath": "/home/jovyan/work"}]
    assert template["metadata"]["annotations"]["muster.dev/gpu-fraction"] == "0.5"
    assert storage.writes() == []


def test_workspaces_are_listed_and_deleted_and_other_jobs_are_not(
    muster: Muster, storage: MemoryApiServer
) -> None:
    notebook = ("-i", "notebook", "--interactive", "-s", "ingress", "--port", "8888")
    assert muster("submit", "note", *notebook, "--clone-of", "data:/work").code == 0
    assert muster("submit", "other", *notebook, "--pvc", "data:/work").code == 0
    assert [line.split() for line in muster("data", "workspace", "list").lines] == [
        ["NAME", "STATUS", "CLONE", "OF", "NODE", "SERVICE", "URL"],
        ["note", "Pending", "data", "-", "<pending>"],
    ]
    assert [each["cloneOf"] for each in muster("data", "workspace", "list", "--json").json] == ["data"]
    done = muster("data", "workspace", "delete", "other")
    assert (done.code, done.out) == (1, "")
    assert "has no workspace other; there are: note" in done.err
    assert muster("data", "workspace", "delete", "note").out == "Workspace note has been deleted\n"
    assert storage.find("statefulsets", "note", NAMESPACE) is None
    assert storage.find("persistentvolumeclaims", "pvc-note-0", NAMESPACE) is None
    assert storage.find("persistentvolumeclaims", "data", NAMESPACE) is not None
