"""Volumes that are created at the node of their first consumer, by the real operator and Kubernetes' own binder."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import PersistentVolumeClaim, Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from orchestrator.cluster.transport import Transport
from orchestrator.names import SELECTED_NODE_ANNOTATION
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare

pytestmark = pytest.mark.lab

PROVISIONER = "example.org/disk"
DISK = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disk"},
    "provisioner": PROVISIONER,
    "volumeBindingMode": "WaitForFirstConsumer",
}


class Provisioner:
    """While `works`, creates a volume on the node that a PersistentVolumeClaim names, as a provisioner of local
    disks does.
    """

    def __init__(self, transport: Transport) -> None:
        self.works = False
        self._transport = transport
        self._wanted: asyncio.Queue[PersistentVolumeClaim] = asyncio.Queue()
        self.claims = Reflector(transport, CLAIMS, PersistentVolumeClaim, on_change=self._see)

    def _see(self, change: Change[PersistentVolumeClaim]) -> None:
        if SELECTED_NODE_ANNOTATION in change.object.metadata.annotations and change.type != "deleted":
            self._wanted.put_nowait(change.object)

    def is_requested(self, name: str) -> bool:
        return any(
            SELECTED_NODE_ANNOTATION in each.metadata.annotations
            for each in self.claims.objects.values()
            if each.metadata.name == name
        )

    async def run(self) -> None:
        made = set()
        while True:
            claim = await self._wanted.get()
            await until(lambda: self.works)
            if claim.metadata.uid not in made:
                made.add(claim.metadata.uid)
                await self._transport.create(PERSISTENT_VOLUMES.path(), self._volume(claim))

    @staticmethod
    def _volume(claim: PersistentVolumeClaim) -> dict[str, Any]:
        metadata = claim.metadata
        host = {
            "key": "kubernetes.io/hostname",
            "operator": "In",
            "values": [metadata.annotations[SELECTED_NODE_ANNOTATION]],
        }
        return {
            "apiVersion": PERSISTENT_VOLUMES.api_version,
            "kind": PERSISTENT_VOLUMES.kind,
            "metadata": {
                "name": f"disk-{metadata.uid}",
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            },
            "spec": {
                "storageClassName": "disk",
                "capacity": {"storage": "1Gi"},
                "accessModes": claim.spec.access_modes,
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata.namespace,
                    "name": metadata.name,
                    "uid": metadata.uid,
                },
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
                "hostPath": {"path": "/disk"},
            },
        }


class Site:
    """Two nodes, an operator, a storage class that waits for consumers, and its provisioner."""

    def __init__(self, lab: Lab, transport: Transport) -> None:
        self._lab = lab
        self.transport = transport
        self.pods = Reflector(transport, PODS, Pod)
        self.provisioner = Provisioner(transport)

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(must, self._lab.kubeconfig, *arguments)

    async def submit(self, name: str, gpus: int, *more: str) -> None:
        await self.run("submit", name, "-i", "quickstart", "-g", str(gpus), "-p", "team-a", *more)

    def reasons_of(self, workload: str) -> list[str]:
        """Return the messages in the conditions of the workload's pods."""
        return [
            condition.message
            for each in self.pods.objects.values()
            if each.metadata.labels["muster.dev/workload"] == workload
            for condition in each.status.conditions
        ]

    async def make_claim(self, name: str, access_mode: str) -> None:
        body = {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "disk",
                "accessModes": [access_mode],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await self.transport.create(CLAIMS.path("muster-team-a"), body)

    def node_of(self, workload: str) -> str:
        """Return the node of the workload's pod, or an empty text while the pod has none."""
        return next(
            (
                each.spec.node_name
                for each in self.pods.objects.values()
                if each.metadata.labels["muster.dev/workload"] == workload
            ),
            "",
        )


@asynccontextmanager
async def shown(site: Site) -> AsyncIterator[Site]:
    async with (
        running(site.pods.run()),
        running(site.provisioner.claims.run()),
        running(site.provisioner.run()),
    ):
        yield site


@pytest.fixture
async def site(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        await transport.create(STORAGE_CLASSES.path(), DISK)
        with operator(account, tmp_path / "operator.log"):
            async with shown(Site(own_lab, transport)) as made:
                yield made


async def test_a_volume_is_made_on_the_node_of_its_pod_and_its_next_pod_runs_there_too(site: Site) -> None:
    await site.run("project", "create", "team-a", "-g", "16")
    await site.make_claim("data", "ReadWriteOnce")
    await site.submit("first", 2, "--pvc", "data:/data")
    await until(lambda: site.provisioner.is_requested("data"))
    await site.submit("other", 1)
    await until(lambda: site.node_of("other"))
    assert site.node_of("first") == "", "it is not bound before its volume is there"
    site.provisioner.works = True
    await until(lambda: site.node_of("first"))
    home = site.node_of("first")
    # read here, because the watch of the claims can be behind that of the pods
    claim = await site.transport.get(CLAIMS.path("muster-team-a", "data"), PersistentVolumeClaim)
    assert claim.status.phase == "Bound"
    assert claim.metadata.annotations[SELECTED_NODE_ANNOTATION] == home

    await site.run("delete", "first", "-p", "team-a")
    await site.run("delete", "other", "-p", "team-a")
    await until(lambda: not site.pods.objects)
    await site.submit("wide", 8)
    await until(lambda: site.node_of("wide") == home)
    await site.submit("second", 2, "--pvc", "data:/data")
    await until(lambda: site.node_of("second"))
    assert site.node_of("second") == home, (
        "the other node was free, but the volume cannot be reached from there"
    )

    # a claim that only one pod can use: the second pod gets no GPU before the first has ended
    await site.make_claim("sole", "ReadWriteOncePod")
    await site.submit("third", 1, "--pvc", "sole:/data")
    await until(lambda: site.node_of("third"))
    await site.submit("fourth", 1, "--pvc", "sole:/data")
    await until(
        lambda: any("only one pod can use the claim sole" in text for text in site.reasons_of("fourth"))
    )
    assert site.node_of("fourth") == ""
    await site.run("delete", "third", "-p", "team-a")
    await until(lambda: site.node_of("fourth"))
