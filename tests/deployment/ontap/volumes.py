"""Volumes of a cluster, their snapshots and clones: the fields that a cluster adds, and the location of their data.

The snapshots of a volume are a collection of their own, named by the volume's uuid. It exists as long as the volume.
"""

import datetime
import uuid
from pathlib import Path
from typing import Protocol

from tests.deployment.ontap.bodies import Record, Refused, merge

VOLUMES = "storage/volumes"


class Disks(Protocol):
    """The data of volumes. `path` is None for a volume without a junction."""

    def create(self, volume: str, source: Path | None) -> None: ...

    def content(self, volume: str, snapshot: str = "") -> Path: ...

    def keep(self, volume: str, snapshot: str) -> None: ...

    def forget(self, volume: str, snapshot: str = "") -> None: ...

    def export(self, volumes: list[Record], policies: list[Record]) -> None: ...


class Cluster(Protocol):
    """The store of the other records, and the data of volumes if the double keeps data."""

    collections: dict[str, list[Record]]
    disks: Disks | None

    def find(self, path: str, name: str, otherwise: str) -> Record: ...


def snapshots_path(volume: str) -> str:
    """Return the name of the collection of a volume's snapshots."""
    return f"{VOLUMES}/{volume}/snapshots"


def complete(store: Cluster, record: Record) -> None:
    """Add the fields of a cluster to a volume.

    Raises:
        Refused: the aggregate, the export policy or the parent of the clone does not exist, or the volume has no size.
    """
    record["uuid"] = str(uuid.uuid4())
    parent = record.get("clone", {}).get("parent_volume")
    whole: Record = {
        "state": "online",
        "style": "flexvol",
        "type": "rw",
        "comment": "",
        "is_svm_root": False,
        "create_time": _now(),
        "snapshot_directory_access_enabled": True,
        "nas": {"security_style": "unix", "unix_permissions": 755, "export_policy": {"name": "default"}},
        "guarantee": {"type": "none"},
        "snapshot_policy": {"name": "none"},
        "space": {"snapshot": {"reserve_percent": 0}, "used": 0, "logical_space": {"used": 0}},
    }
    if parent:
        source = store.find(VOLUMES, parent["name"], f'volume "{parent["name"]}" does not exist')
        merge(whole, {key: source[key] for key in ("size", "style", "guarantee", "space")})
        snapshot = record["clone"].setdefault("parent_snapshot", {"name": f"clone_{record['name']}"})
        if all(
            existing["name"] != snapshot["name"]
            for existing in store.collections[snapshots_path(source["uuid"])]
        ):
            create_snapshot(store, source, {"name": snapshot["name"]})
        whole["nas"]["export_policy"] = dict(source["nas"]["export_policy"])
    for aggregate in record.get("aggregates", []):
        name = aggregate["name"]
        aggregate |= {
            "uuid": store.find("storage/aggregates", name, f'aggregate "{name}" does not exist')["uuid"]
        }
    merge(whole, record)
    record.update(whole)
    if not record.get("size"):
        raise Refused("A volume needs a size.", code="917535")
    _check_policy(store, record)
    record["space"]["size"] = record["size"]
    store.collections[snapshots_path(record["uuid"])] = []


def create_snapshot(store: Cluster, volume: Record, record: Record) -> Record:
    """Copy the present content of a volume; return the snapshot."""
    path = snapshots_path(volume["uuid"])
    if any(existing["name"] == record["name"] for existing in store.collections[path]):
        raise Refused(f'Snapshot copy "{record["name"]}" already exists', status=409, code="1638464")
    record |= {
        "uuid": str(uuid.uuid4()),
        "create_time": _now(),
        "svm": dict(volume["svm"]),
        "volume": {"name": volume["name"], "uuid": volume["uuid"]},
    }
    store.collections[path].append(record)
    if store.disks:
        store.disks.keep(volume["uuid"], record["name"])
    return record


def created(store: Cluster, path: str, record: Record) -> None:
    """Create the data of a new volume, from its parent if it is a clone."""
    if path != VOLUMES or not store.disks:
        return
    source = None
    if "clone" in record:
        clone = record["clone"]
        (parent,) = (
            each for each in store.collections[VOLUMES] if each["name"] == clone["parent_volume"]["name"]
        )
        source = store.disks.content(parent["uuid"], clone["parent_snapshot"]["name"])
    store.disks.create(record["uuid"], source)
    export(store)


def changed(store: Cluster, path: str, record: Record) -> None:
    """Check the policy of a changed volume, update its size, and export the volumes again."""
    if path.startswith(f"{VOLUMES}/"):
        _check_policy(store, record)
        record["space"]["size"] = record["size"]
        export(store)


def deleted(store: Cluster, collection: str, record: Record) -> None:
    """Delete the snapshots and the data of a deleted volume, or the data of a deleted snapshot."""
    if collection == VOLUMES:
        store.collections.pop(snapshots_path(record["uuid"]), None)
        if store.disks:
            store.disks.forget(record["uuid"])
            export(store)
    elif collection.startswith(f"{VOLUMES}/") and store.disks:
        store.disks.forget(record["volume"]["uuid"], record["name"])
    elif collection.startswith("protocols/nfs/export-policies"):
        export(store)


def export(store: Cluster) -> None:
    """Let the NFS server export the volumes with a junction to the clients in their export policies."""
    if store.disks:
        store.disks.export(store.collections[VOLUMES], store.collections["protocols/nfs/export-policies"])


def _check_policy(store: Cluster, volume: Record) -> None:
    name = volume["nas"]["export_policy"]["name"]
    policies = store.collections["protocols/nfs/export-policies"]
    if name != "default" and all(policy["name"] != name for policy in policies):
        raise Refused(f'export policy "{name}" does not exist', code="917536")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
