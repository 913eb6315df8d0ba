"""The role trident on a real API server, with a double of Trident."""

import asyncio
import base64
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import musterlab.cluster
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CRDS, Resource
from orchestrator.cluster.transport import Transport
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.trident_double import (
    BACKENDS,
    CLAIMS,
    GROUP,
    ORCHESTRATORS,
    VOLUMES,
    TridentDouble,
    archive,
    trident,
)

pytestmark = [pytest.mark.lab, pytest.mark.rare]  # takes two minutes; `make test-installer` runs it

RELEASE = "26.06.0"
PASSWORD = "canary-of-trident"
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
SITE = """schema: 1
name: here
versions:
  kubernetes: "1.36.3"
  trident: "{release}"
  ontap: "9.16.1"
  dra: "off"
storage:
  ontap:
    management_lif: 127.0.0.1
    https_port: {port}
    svm: svm_ai
    username: admin
    password: {{env: ADMIN_PASSWORD}}
    trident_password: {{env: TRIDENT_PASSWORD}}
    export_cidrs: [192.168.11.0/24]
  backends:
    - {{name: a800-nas, driver: ontap-nas, data_lif: 192.168.11.11}}
  classes:
    - {{name: ontap-nas-a800, backend: a800-nas, default: true, mount_options: [nfsvers=4.1]}}
not_applicable:
  ontap: the storage of this test is a listening port
  orchestrator: this test is about storage
vars:
  preflight_kubernetes: ""
  preflight_storage_addresses: []
  trident_archive: {archive}
  trident_directory: {directory}
  trident_backend_seconds: 120
  verify_volume_seconds: 120
"""


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "dataset", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    running = musterlab.cluster.start("storage", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield running.kubeconfig
    running.stop()


@pytest.fixture
def double(kubeconfig: Path) -> Iterator[TridentDouble]:
    with trident(kubeconfig, RELEASE) as running:
        yield running


@pytest.fixture
def site(site: SiteUnderTest, kubeconfig: Path, tmp_path: Path) -> Iterator[SiteUnderTest]:
    with socket.create_server(("127.0.0.1", 0)) as lif:
        site.write(
            SITE.format(
                release=RELEASE,
                port=lif.getsockname()[1],
                archive=archive(tmp_path / "trident-installer.tar.gz"),
                directory=tmp_path / "unpacked",
            )
        )
        site.environment |= {
            "KUBECONFIG": str(kubeconfig),
            "ADMIN_PASSWORD": "canary-of-admin",
            "TRIDENT_PASSWORD": PASSWORD,
        }
        yield site


async def fetch(kubeconfig: Path, path: str) -> dict[str, Any]:
    async with Transport(load_access(kubeconfig)) as transport:
        answer: dict[str, Any] = await transport.get(path)
    return answer


async def write(kubeconfig: Path, path: str, body: dict[str, Any]) -> None:
    async with Transport(load_access(kubeconfig)) as transport:
        await transport.create(path, body)


async def volumes(kubeconfig: Path, count: int) -> None:
    """Wait until this number of volumes exists."""
    async with Transport(load_access(kubeconfig)) as transport, asyncio.timeout(120):
        while len((await transport.get(VOLUMES.path()))["items"]) != count:  # noqa: ASYNC110  (what is waited for is not ours to signal)
            await asyncio.sleep(0.01)


async def refuses_what_is_wrong(site: SiteUnderTest, kubeconfig: Path, double: TridentDouble) -> None:
    other = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "nfs-client",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "cluster.local/nfs",
    }
    await write(kubeconfig, CLASSES.path(), other)
    two_defaults = site.muster("install")
    assert two_defaults.returncode == 1
    assert "nfs-client is the default storage class already" in two_defaults.stderr
    async with Transport(load_access(kubeconfig)) as transport:
        await transport.delete(CLASSES.path(None, "nfs-client"))

    double.backend_error = "no aggregates assigned to SVM svm_ai"
    failed = site.muster("install")
    assert failed.returncode == 1
    assert "backend a800-nas is not bound, Failed: no aggregates assigned to SVM svm_ai" in failed.stderr
    assert "cause   no aggregate is assigned to the SVM" in failed.stderr

    double.backend_error = ""
    double.mute_volumes = True
    patient = site.file.read_text()
    site.write(patient.replace("verify_volume_seconds: 120", "verify_volume_seconds: 5"))
    pending = site.muster("install")
    assert pending.returncode == 1
    assert "no volume came within 5 s" in pending.stderr
    assert (await fetch(kubeconfig, CLAIMS.path()))["items"] == []
    double.mute_volumes = False
    site.write(patient)


async def test_storage_fails_clearly_is_installed_is_proved_and_is_removed(
    site: SiteUnderTest, kubeconfig: Path, double: TridentDouble, tmp_path: Path
) -> None:
    await refuses_what_is_wrong(site, kubeconfig, double)
    proved = site.muster("install")
    assert proved.returncode == 0, proved.stderr
    assert "trident: done" in proved.stderr

    backend = await fetch(kubeconfig, BACKENDS.path("trident", "a800-nas"))
    assert backend["spec"]["useREST"] is True
    port = re.search(r"https_port: (\d+)", site.file.read_text())
    assert port
    assert backend["spec"]["managementLIF"] == f"127.0.0.1:{port[1]}"
    assert backend["spec"]["credentials"] == {"name": "ontap-credentials"}
    assert backend["spec"]["deletionPolicy"] == "retain"
    storage_class = await fetch(kubeconfig, CLASSES.path(None, "ontap-nas-a800"))
    assert storage_class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
    assert storage_class["mountOptions"] == ["nfsvers=4.1"]
    assert (await fetch(kubeconfig, CLAIMS.path()))["items"] == []
    secret = await fetch(kubeconfig, SECRETS.path("trident", "ontap-credentials"))
    assert base64.b64decode(secret["data"]["password"]).decode() == PASSWORD

    again = site.muster("install", "--from", "trident", "--until", "trident")
    assert again.returncode == 0, again.stderr
    assert "controller: " in again.stderr
    assert " 0 changed" in again.stderr, again.stderr

    await volumes(kubeconfig, 0)
    await write(kubeconfig, CLAIMS.path("default"), CLAIM)
    await volumes(kubeconfig, 1)
    refused = site.muster("teardown", "--yes")
    assert refused.returncode == 1
    assert "1 volumes are in use (dataset)" in refused.stderr
    async with Transport(load_access(kubeconfig)) as transport:
        await transport.delete(CLAIMS.path("default", "dataset"))
    await volumes(kubeconfig, 0)
    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
    for gone in (CLASSES.path(None, "ontap-nas-a800"), CRDS.path(None, f"{ORCHESTRATORS.plural}.{GROUP}")):
        with pytest.raises(NotFound):
            await fetch(kubeconfig, gone)
    for path in [*site.state.rglob("*"), *(tmp_path / "unpacked").rglob("*")]:
        assert not path.is_file() or PASSWORD not in path.read_text(errors="replace"), path
