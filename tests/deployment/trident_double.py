"""Does the writes of Trident's operator and controller on the API server, without storage: statuses, definitions,
volumes.
"""

import asyncio
import contextlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.cluster.errors import AlreadyExists, ClusterError, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CRDS, Resource
from orchestrator.cluster.transport import Transport

GROUP = "trident.netapp.io"
ORCHESTRATORS = Resource(GROUP, "v1", "tridentorchestrators", "TridentOrchestrator", namespaced=False)
BACKENDS = Resource(GROUP, "v1", "tridentbackendconfigs", "TridentBackendConfig")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
_TICK_SECONDS = 0.1
Double = TypeVar("Double", bound="OperatorDouble")


def definition(resource: Resource, short: str) -> dict[str, Any]:
    """Return a definition of a kind that accepts all fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
        },
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [short],
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def archive(path: Path) -> Path:
    """Make an installer archive with the files that muster uses; tests/upstream compares their names with the real
    archive.
    """
    operator = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trident-operator"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "trident-operator"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "trident-operator"}},
                "template": {
                    "metadata": {"labels": {"app": "trident-operator"}},
                    "spec": {
                        "containers": [{"name": "operator", "image": "netapp/trident-operator:26.06.0"}]
                    },
                },
            },
        },
    ]
    files = {
        "crds/trident.netapp.io_tridentorchestrators_crd_post1.16.yaml": [definition(ORCHESTRATORS, "torc")],
        "bundle.yaml": operator,
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, documents in files.items():
            text = "".join(f"---\n{json.dumps(document)}\n" for document in documents).encode()
            entry = tarfile.TarInfo(f"trident-installer/deploy/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return path


class OperatorDouble(threading.Thread):
    """Reports until it is stopped that Trident is installed, as its operator does. It installs nothing."""

    def __init__(self, kubeconfig: Path, release: str) -> None:
        super().__init__()
        self._kubeconfig = kubeconfig
        self._release = release
        self._stop_requested = threading.Event()

    def stop(self) -> None:
        self._stop_requested.set()
        self.join()

    def run(self) -> None:
        asyncio.run(self._answer())

    async def _answer(self) -> None:
        async with Transport(load_access(self._kubeconfig)) as transport:
            while not self._stop_requested.is_set():
                with contextlib.suppress(ClusterError):
                    await self._act(transport)
                await asyncio.sleep(_TICK_SECONDS)

    async def _act(self, transport: Transport) -> None:
        await self._orchestrate(transport)

    async def _orchestrate(self, transport: Transport) -> None:
        for each in await _items(transport, ORCHESTRATORS):
            if each["spec"].get("uninstall"):
                with contextlib.suppress(NotFound):
                    await transport.delete(CRDS.path(None, f"{BACKENDS.plural}.{GROUP}"))
                await _status(transport, ORCHESTRATORS, each, {"status": "Uninstalled"})
            elif each.get("status", {}).get("status") != "Installed":
                with contextlib.suppress(AlreadyExists):
                    await transport.create(CRDS.path(), definition(BACKENDS, "tbc"))
                await _status(
                    transport, ORCHESTRATORS, each, {"status": "Installed", "version": f"v{self._release}"}
                )


class TridentDouble(OperatorDouble):
    """Also does the writes of the controller. `backend_error` and `mute_volumes` make it fail as Trident does."""

    def __init__(self, kubeconfig: Path, release: str) -> None:
        super().__init__(kubeconfig, release)
        self.backend_error = ""
        self.mute_volumes = False

    async def _act(self, transport: Transport) -> None:
        await super()._act(transport)
        await self._bind_backends(transport)
        await self._provision(transport)

    async def _bind_backends(self, transport: Transport) -> None:
        for each in await _items(transport, BACKENDS):
            status = {"phase": "Bound", "lastOperationStatus": "Success"}
            if self.backend_error:
                status = {"phase": "", "lastOperationStatus": "Failed", "message": self.backend_error}
            if each.get("status") != status:
                await _status(transport, BACKENDS, each, status)

    async def _provision(self, transport: Transport) -> None:
        for each in [] if self.mute_volumes else await _items(transport, CLAIMS):
            if each["status"].get("phase") != "Pending":
                continue
            metadata = each["metadata"]
            body = {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {
                    "name": f"pvc-{metadata['uid']}",
                    "annotations": {"pv.kubernetes.io/provisioned-by": "csi.trident.netapp.io"},
                },
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": each["spec"]["accessModes"],
                    "storageClassName": each["spec"]["storageClassName"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {key: metadata[key] for key in ("name", "namespace", "uid")},
                    "csi": {"driver": "csi.trident.netapp.io", "volumeHandle": metadata["uid"]},
                },
            }
            with contextlib.suppress(AlreadyExists):
                await transport.create(VOLUMES.path(), body)
        for volume in await _items(transport, VOLUMES):
            if volume["status"].get("phase") == "Released":
                with contextlib.suppress(NotFound):
                    await transport.delete(VOLUMES.path(None, volume["metadata"]["name"]))


@contextmanager
def trident(kubeconfig: Path, release: str) -> Iterator[TridentDouble]:
    """Yield a double for the length of a test."""
    with running(TridentDouble(kubeconfig, release)) as double:
        yield double


@contextmanager
def running(double: Double) -> Iterator[Double]:
    """Run a double for the length of the block."""
    double.start()
    try:
        yield double
    finally:
        double.stop()


async def _items(transport: Transport, resource: Resource) -> list[dict[str, Any]]:
    try:
        answer: dict[str, Any] = await transport.get(resource.path())
    except NotFound:
        return []
    return list(answer["items"])


async def _status(
    transport: Transport, resource: Resource, item: dict[str, Any], status: dict[str, str]
) -> None:
    metadata = item["metadata"]
    path = resource.path(metadata.get("namespace"), metadata["name"], "status")
    await transport.patch(path, {"status": status})
