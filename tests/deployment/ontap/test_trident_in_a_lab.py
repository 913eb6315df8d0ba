"""From a bare A800 to data on two nodes: `muster install`, NetApp's real Trident in a cluster, pods, NFS.

Real are the API server, two kubelets with containerd, external-provisioner, external-attacher, Trident as CSI
controller and node plugin, the NFS server and libnfs. Doubles are ONTAP's REST interface, the operator of Trident (it
reports "Installed"), the registrar, and the `mount.nfs` of the nodes: no kernel mounts NFS.
"""

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

import musterlab.cluster
from musterlab.cluster import Lab
from musterlab.realnodes import images, kernel, plan
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CLAIMS, PODS
from orchestrator.cluster.transport import Transport
from tests.cluster.certificates import Authority
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.ontap import nfs, programs
from tests.deployment.ontap.conftest import TRIDENT_PASSWORD
from tests.deployment.ontap.double import Double
from tests.deployment.ontap.trident_in_cluster import trident
from tests.deployment.trident_double import OperatorDouble, archive, running

pytestmark = [pytest.mark.rare, pytest.mark.lab, pytest.mark.real_nodes]

NODES: Final = ("dgx1-real-1", "dgx1-real-2")
LIF: Final = "10.80.200.11"
SITE: Final = """schema: 1
name: here
versions:
  kubernetes: "1.36.3"
  trident: "26.06.0"
  ontap: "9.16.1"
  dra: "off"
storage:
  ontap:
    management_lif: 127.0.0.1
    https_port: {port}
    ca_file: {authority}
    username: admin
    password: {{env: ONTAP_PASSWORD}}
    interface_groups:
      - {{node: a800-01, ports: [e5a, e5b]}}
      - {{node: a800-02, ports: [e5a, e5b]}}
    vlans:
      - {{node: a800-01, parent: a0a, id: 3111}}
      - {{node: a800-02, parent: a0a, id: 3111}}
    svm: svm_ai
    aggregates: [aggr1_a800_01, aggr1_a800_02]
    svm_management_lif:
      {{name: svm_mgmt, address: 127.0.0.1, netmask: 255.0.0.0, home_node: a800-01, home_port: e0M}}
    data_lifs:
      - {{name: nfs_1, address: {lif}, netmask: 255.255.0.0, home_node: a800-01, home_port: a0a-3111}}
    export_cidrs: [10.80.0.0/16]
    trident_password: {{env: TRIDENT_PASSWORD}}
  backends:
    - {{name: a800-nas, driver: ontap-nas, data_lif: {lif}}}
  classes:
    - {{name: ontap-nas-a800, backend: a800-nas, default: true, mount_options: [nfsvers=4.1]}}
not_applicable:
  orchestrator: this test is about storage
vars:
  preflight_kubernetes: ""
  preflight_storage_addresses: []
  trident_archive: {archive}
  trident_directory: {directory}
  verify_nodes: [{nodes}]
  verify_gpus: false
  verify_job_image: {image}
  verify_volume_seconds: 40
  verify_mount_seconds: 30
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose two real nodes run Trident."""
    programs.trident()
    programs.manifests()
    programs.attacher()
    nfs.programs()
    folder = tmp_path_factory.mktemp("t")
    started = musterlab.cluster.start(
        "trident", nodes=0, real_nodes=len(NODES), detach=False, state_dir=folder / "labs"
    )
    try:
        (folder / "trident").mkdir()
        with (
            trident(started, folder / "trident"),
            running(OperatorDouble(started.kubeconfig, programs.RELEASE)),
        ):
            yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def cluster(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    """Yield an A800 before its setup. Its management LIF is on this machine and the nodes, its data LIF on their
    bridge.
    """
    namespace = json.loads(plan.published(lab.state_directory).read_text())["namespace"]
    folder = tmp_path_factory.mktemp("disks")
    double = Double(Authority())
    double.start()
    home, there = (os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", namespace))
    with kernel.inside(there, home):
        double.start()
    with nfs.joined(LIF, namespace, "muster0") as network:
        exports = nfs.Exports(network, folder)
        exports.start()
        double.store.disks = exports
        yield double
        exports.stop()
    double.stop()
    os.close(home)
    os.close(there)


@pytest.fixture(scope="module")
def installed(lab: Lab, cluster: Double, tmp_path_factory: pytest.TempPathFactory) -> SiteUnderTest:
    """Return the site after the installation of all stages before `verify`."""
    folder = tmp_path_factory.mktemp("site")
    authority = folder / "authority.pem"
    authority.write_bytes(cluster.authority.pem)
    site = SiteUnderTest(folder, folder / "state", {"XDG_CACHE_HOME": str(folder / "cache")})
    site.environment |= {
        "KUBECONFIG": str(lab.kubeconfig),
        "ONTAP_PASSWORD": cluster.password,
        "TRIDENT_PASSWORD": TRIDENT_PASSWORD,
    }
    values = {"archive": archive(folder / "installer.tar.gz"), "directory": folder / "unpacked", "lif": LIF}
    site.write(
        SITE.format(
            port=cluster.port,
            authority=authority,
            nodes=", ".join(NODES),
            image=images.SHELL,
            **values,
        )
    )
    done = site.muster("install", "--until", "trident")
    assert done.returncode == 0, done.stderr
    return site


def claim(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, node: str, volume: str, script: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": images.SHELL,
        "command": ["sh", "-ec", script],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def run(transport: Transport, body: dict[str, Any]) -> str:
    """Run a pod until it succeeds; return its output."""
    await transport.create(PODS.path("default"), body)
    path = PODS.path("default", body["metadata"]["name"])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := await transport.get(path))["status"]["phase"] in {"Pending", "Running"}:
        assert time.monotonic() < deadline, found["status"]
        await asyncio.sleep(0.2)
    said = await transport.text(f"{path}/log")
    assert found["status"]["phase"] == "Succeeded", said
    return said


def until_given_back(cluster: Double) -> None:
    """Wait until the storage has no volume. Its deletion begins when no pod uses the PersistentVolumeClaim."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while cluster.store.collections["storage/volumes"]:
        assert time.monotonic() < deadline, "the volume is still on the storage"
        time.sleep(0.2)


def test_every_node_writes_to_the_a800_and_reads_the_file_of_the_other(
    installed: SiteUnderTest, cluster: Double
) -> None:
    cluster.requests.clear()
    green = installed.muster("verify", "--json")
    assert green.returncode == 0, green.stderr
    stages = json.loads(green.stdout)["stages"]
    proved = " ".join(line for stage in stages for line in stage["proved"])
    assert f"written on {', '.join(NODES)}, read on another node each time" in proved
    assert ("POST", "storage/volumes") in {(request.method, request.path) for request in cluster.requests}
    assert cluster.refused == set()
    until_given_back(cluster)


@pytest.mark.usefixtures("installed")
async def test_bytes_of_a_pod_on_one_node_are_those_that_a_pod_on_the_other_reads(
    cluster: Double, lab: Lab
) -> None:
    write = "head -c 300000 /dev/urandom > /data/bytes; sha256sum < /data/bytes; grep ' /data ' /proc/mounts"
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await transport.create(CLAIMS.path("default"), claim("dataset"))
        written = await run(transport, pod("writer", NODES[0], "dataset", write))
        read = await run(transport, pod("reader", NODES[1], "dataset", "sha256sum < /data/bytes"))
        (volume,) = cluster.store.collections["storage/volumes"]
        disks = cluster.store.disks
        assert disks
        held = hashlib.sha256((disks.content(volume["uuid"]) / "bytes").read_bytes()).hexdigest()
        assert written.split()[0] == read.split()[0] == held
        assert f"{LIF}:{volume['nas']['path']} /data fuse.nfs rw," in written
        for resource, name in ((PODS, "writer"), (PODS, "reader"), (CLAIMS, "dataset")):
            await transport.delete(resource.path("default", name))
    until_given_back(cluster)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/storage/volumes", "no volume came within 40 s"),
        ("/api/protocols/nfs/export-policies/rules", "no write on dgx1-real-1"),
    ],
)
def test_with_one_right_less_the_verification_names_it(
    installed: SiteUnderTest, cluster: Double, path: str, words: str
) -> None:
    (role,) = cluster.store.collections["security/roles"]
    whole = role["privileges"]
    role["privileges"] = [each for each in whole if each["path"] != path]
    try:
        red = installed.muster("install", "--from", "verify")
    finally:
        role["privileges"] = whole
    assert red.returncode == 1
    assert words in red.stderr, red.stderr
    named = re.search(r"\[(?:GET|POST|PATCH|DELETE) (\S+)\]\[403\]", red.stderr)
    assert named, red.stderr
    assert "/api" + re.sub(r"/{[^}]*}", "", named[1]) == path
