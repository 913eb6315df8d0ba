"""Each node mounts a volume of the default class, writes, and reads another node's file: roles/verify on real kubelets.

The kernel of this machine has no NFS client, so the volume is a directory of the machine that both nodes share.
Kubelets, pods and the role work as with volumes of Trident.
"""

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from musterlab.cluster import Lab, start
from musterlab.realnodes import images
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CLAIMS, PERSISTENT_VOLUMES, PODS, Resource
from orchestrator.cluster.transport import Transport
from tests.deployment.conftest import SiteUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

NODES: Final = ("dgx1-real-1", "dgx1-real-2")
CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
SITE: Final = f"""schema: 1
name: here
versions:
  kubernetes: "1.36.3"
  dra: "off"
not_applicable:
  orchestrator: this test is about storage
vars:
  preflight_kubernetes: ""
  verify_nodes: [{", ".join(NODES)}]
  verify_gpus: false
  verify_storage: true
  verify_job_image: {images.SHELL}
  verify_mount_seconds: 60
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    running = start(
        "mounts", nodes=0, real_nodes=len(NODES), detach=False, state_dir=tmp_path_factory.mktemp("m")
    )
    shared = {
        "apiVersion": CLASSES.api_version,
        "kind": CLASSES.kind,
        "metadata": {
            "name": "shared",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
    }
    asyncio.run(create(running, CLASSES, shared))
    yield running
    running.stop()


@pytest.fixture
def site(site: SiteUnderTest, lab: Lab) -> SiteUnderTest:
    site.write(SITE)
    site.environment["KUBECONFIG"] = str(lab.kubeconfig)
    return site


@pytest.fixture
def volume(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """Yield the directory of the volume; `offer` makes a PersistentVolume of it."""
    directory = tmp_path / "volume"
    directory.mkdir(mode=0o777)
    yield directory
    asyncio.run(delete(lab, PERSISTENT_VOLUMES, "shared"))


async def create(lab: Lab, resource: Resource, body: dict[str, Any]) -> None:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await transport.create(resource.path(), body)


async def delete(lab: Lab, resource: Resource, name: str) -> None:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await transport.delete(resource.path(None, name))


async def remains(lab: Lab) -> list[str]:
    """Return the objects of the verification that are still in its namespace."""
    async with Transport(load_access(lab.kubeconfig)) as transport:
        items = [
            item for kind in (CLAIMS, PODS) for item in (await transport.get(kind.path("default")))["items"]
        ]
    return [item["metadata"]["name"] for item in items]


def offer(lab: Lab, directory: Path, nodes: tuple[str, ...] = NODES) -> None:
    """Make a PersistentVolume of the directory; only these nodes can mount it."""
    terms = [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)},
            ]
        }
    ]
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "hostPath": {"path": str(directory), "type": "Directory"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "shared"}, "spec": spec}
    asyncio.run(create(lab, PERSISTENT_VOLUMES, body))


def verify(site: SiteUnderTest) -> subprocess.CompletedProcess[str]:
    return site.muster("verify", "--json", seconds=400)


def test_every_node_writes_and_reads_and_nothing_is_left(site: SiteUnderTest, lab: Lab, volume: Path) -> None:
    offer(lab, volume)
    green = verify(site)
    assert green.returncode == 0, green.stderr
    proved = {stage["stage"]: " ".join(stage["proved"]) for stage in json.loads(green.stdout)["stages"]}
    assert f"written on {', '.join(NODES)}, read on another node each time" in proved["verify"]
    assert {path.name for path in volume.iterdir()} == set(NODES)
    assert asyncio.run(remains(lab)) == []


@pytest.mark.rare  # the kubelet retries for more than a minute
def test_a_node_that_cannot_mount_is_named_with_the_kubelets_words(
    site: SiteUnderTest, lab: Lab, volume: Path
) -> None:
    site.write(SITE.replace("verify_mount_seconds: 60", "verify_mount_seconds: 30"))
    offer(lab, volume, NODES[:1])
    red = verify(site)
    assert red.returncode == 1
    assert f"no write on {NODES[1]}: MountVolume.NodeAffinity check failed" in red.stderr, red.stderr
    assert f"no write on {NODES[0]}" not in red.stderr
    assert asyncio.run(remains(lab)) == []


def test_a_node_that_does_not_see_the_file_of_another_is_named(
    site: SiteUnderTest, lab: Lab, volume: Path
) -> None:
    offer(lab, volume)
    written, over = volume / NODES[1], threading.Event()

    def lose() -> None:
        """Remove the file of the second node, as if the node had mounted something else."""
        while not over.wait(0.05):
            if written.exists() and NODES[1] in written.read_text():
                written.write_text("of somebody else\n")

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        red = verify(site)
    finally:
        over.set()
        thread.join()
    assert red.returncode == 1
    assert f"no read on {NODES[0]}: /volume/{NODES[1]} is not what was written there" in red.stderr, (
        red.stderr
    )
    assert f"no read on {NODES[1]}" not in red.stderr
    assert asyncio.run(remains(lab)) == []
