"""A succeeded Job gets its snapshots and starts the jobs after it; the operator has only its own rights."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLAIMS,
    JOBS,
    PERSISTENT_VOLUMES,
    VOLUME_SNAPSHOT_CLASSES,
    VOLUME_SNAPSHOTS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from tests.client.snapshot_definitions import apply_snapshot_definitions
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, operator, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

PROJECT = "results"
NAMESPACE = f"muster-{PROJECT}"
VOLUME_SPEC = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
JOB = ("-p", PROJECT, "-i", "image", "--pvc", "data:/data", "--snapshot-on-success", "--backoff-limit", "0")


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("kept", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


async def create_storage(admin: Transport) -> None:
    """Create the definitions of snapshots, a VolumeSnapshotClass, and a volume with a PersistentVolumeClaim in the
    project.
    """
    await apply_snapshot_definitions(admin)
    snapshot_class = {
        "metadata": {"name": "gold"},
        "driver": "hostpath.csi.k8s.io",
        "deletionPolicy": "Delete",
    }
    kind = {"apiVersion": VOLUME_SNAPSHOT_CLASSES.api_version, "kind": VOLUME_SNAPSHOT_CLASSES.kind}
    await until_served(admin)
    await apply(admin, {**kind, **snapshot_class})
    volume = {
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "hostpath.csi.k8s.io", "volumeHandle": "data"},
        "claimRef": {"namespace": NAMESPACE, "name": "data"},
    }
    await admin.create(
        PERSISTENT_VOLUMES.path(), named("data", PERSISTENT_VOLUMES.kind, VOLUME_SPEC | volume)
    )
    claim = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": "data"}
    await admin.create(CLAIMS.path(NAMESPACE), named("data", CLAIMS.kind, VOLUME_SPEC | claim))


def named(name: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


async def until_served(admin: Transport) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await admin.get(VOLUME_SNAPSHOT_CLASSES.path())
            except NotFound:
                await asyncio.sleep(0.05)
            else:
                return


async def submit(admin: Transport, access: Path, name: str, *, exit_code: int, suspend: bool = False) -> None:
    """Create the Job of `muster submit`, whose pods end immediately with this exit code on a node of the lab."""
    words = ("submit", name, *JOB, "--dry-run", "-o", "json")
    (job,) = json.loads(await asyncio.to_thread(must, access, *words))["items"]
    ends = {"muster.dev/lab-run-seconds": "0.1", "muster.dev/lab-exit-code": str(exit_code)}
    metadata = job["spec"]["template"].setdefault("metadata", {})
    metadata["annotations"] = metadata.get("annotations", {}) | ends
    job["spec"]["suspend"] = suspend
    await admin.create(JOBS.path(NAMESPACE), job)


async def until_started(admin: Transport, name: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await admin.get(JOBS.path(NAMESPACE, name)))["spec"].get("suspend"):  # noqa: ASYNC110 - polls a server
            await asyncio.sleep(0.1)


async def until_ended(admin: Transport, name: str, condition: str) -> dict[str, Any]:
    """Return the Job once it has the condition and, if it succeeded, its snapshots."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            job: dict[str, Any] = await admin.get(JOBS.path(NAMESPACE, name))
            types = {item["type"] for item in job["status"].get("conditions", ())}
            has_snapshots = "muster.dev/snapshots" in job["metadata"]["annotations"]
            if condition in types and (has_snapshots or condition == "Failed"):
                return job
            await asyncio.sleep(0.1)


async def test_a_job_that_succeeded_gets_snapshots_and_one_that_failed_gets_none(
    own_lab: Lab, tmp_path: Path
) -> None:
    access = own_lab.kubeconfig
    account = await prepare(access, tmp_path / "operator.kubeconfig")
    with operator(account, tmp_path / "operator.log"):
        await asyncio.to_thread(must, access, "project", "create", PROJECT, "-g", "1")
        async with Transport(load_access(access)) as admin:
            await create_storage(admin)
            await submit(admin, access, "bad", exit_code=1)
            await submit(admin, access, "good", exit_code=0, suspend=True)
            for name, after in (("next", "good"), ("last", "next:ended"), ("never", "good:failed")):
                await asyncio.to_thread(
                    must, access, "submit", name, "-p", PROJECT, "-i", "image", "--after", after
                )
            assert "WaitsForJob: it starts after good has succeeded" in must(
                access, "get", "next", "-p", PROJECT
            )
            await asyncio.to_thread(must, access, "resume", "good", "-p", PROJECT)
            failed = await until_ended(admin, "bad", "Failed")
            job = await until_ended(admin, "good", "Complete")
            await until_started(admin, "next")
            snapshots = (await admin.get(VOLUME_SNAPSHOTS.path(NAMESPACE)))["items"]
    snapshot_name = f"good-0-{job['metadata']['uid'][:8]}"
    assert [snapshot["metadata"]["name"] for snapshot in snapshots] == [snapshot_name]
    assert snapshots[0]["spec"]["source"] == {"persistentVolumeClaimName": "data"}
    assert "muster.dev/snapshots" not in failed["metadata"]["annotations"]
    shown = json.loads(must(access, "get", "good", "-p", PROJECT, "-o", "json"))
    assert shown["snapshots"] == [snapshot_name]
    names = "last", "never", "next"
    last, never, after = (
        json.loads(must(access, "get", name, "-p", PROJECT, "-o", "json")) for name in names
    )
    assert last["waitsBecause"] == "WaitsForJob: it starts after next has ended"
    assert (never["status"], after["waitsBecause"].partition(":")[0]) == ("DependencyFailed", "")
