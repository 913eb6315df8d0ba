"""The fields of VolumeSnapshots that muster reads and writes are in the definition that
external-snapshotter publishes.
"""

from typing import Any

import msgspec
import yaml

from orchestrator.cluster.resources import VOLUME_SNAPSHOTS
from orchestrator.cluster.storage_objects import SnapshotError, SnapshotSource, SnapshotSpec, SnapshotStatus
from orchestrator.submit.datasets import snapshot_manifest
from tests.client.snapshot_definitions import FOLDER

PATH = FOLDER / "snapshot.storage.k8s.io_volumesnapshots.yaml"
(CRD,) = (part for part in yaml.safe_load_all(PATH.read_text(encoding="utf-8")) if part)
(V1,) = (version for version in CRD["spec"]["versions"] if version["name"] == VOLUME_SNAPSHOTS.version)
SCHEMA: dict[str, Any] = V1["schema"]["openAPIV3Schema"]["properties"]


def test_the_kind_lives_where_muster_looks_for_it() -> None:
    names, spec = CRD["spec"]["names"], CRD["spec"]
    assert (spec["group"], names["plural"], names["kind"], spec["scope"]) == (
        VOLUME_SNAPSHOTS.group,
        VOLUME_SNAPSHOTS.plural,
        VOLUME_SNAPSHOTS.kind,
        "Namespaced",
    )
    assert (V1["served"], V1["storage"]) == (True, True)


def test_every_field_that_is_read_is_in_the_definition() -> None:
    status = SCHEMA["status"]["properties"]
    for struct, schema in (
        (SnapshotSpec, SCHEMA["spec"]["properties"]),
        (SnapshotSource, SCHEMA["spec"]["properties"]["source"]["properties"]),
        (SnapshotStatus, status),
        (SnapshotError, status["error"]["properties"]),
    ):
        fields = {field.encode_name for field in msgspec.structs.fields(struct)}
        assert fields <= schema.keys()
    assert status["restoreSize"]["x-kubernetes-int-or-string"] is True


def test_every_field_that_is_written_is_in_the_definition() -> None:
    spec = snapshot_manifest("monday", "data", "muster-team-a", "gold")["spec"]
    assert spec.keys() <= SCHEMA["spec"]["properties"].keys()
    assert spec["source"].keys() <= SCHEMA["spec"]["properties"]["source"]["properties"].keys()
