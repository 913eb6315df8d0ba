"""NetApp's real Trident against the double, with the account of the role `ontap`: volumes, and data over NFS.

A real ONTAP and the kernel's NFS client are not tested. The server is nfs-ganesha and the clients are libnfs' tools,
all in user space and in their own network namespaces. The server admits the clients in Trident's export policies.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from grpclib.exceptions import GRPCError

from tests.deployment.ontap import nfs, programs, trident
from tests.deployment.ontap.conftest import TRIDENT_PASSWORD
from tests.deployment.ontap.double import Double
from tests.deployment.ontap.rights import endpoint
from tests.deployment.ontap.test_ontap_rights import LIFE, privileges
from tests.deployment.ontap.trident import Trident

pytestmark = [pytest.mark.lab, pytest.mark.rare]

ROLES = Path(__file__).parents[3] / "roles"
LIF = "192.168.11.11"
NODES = {"dgx-1": "192.168.11.21", "dgx-2": "192.168.11.22", "dgx-3": "192.168.11.23"}
SIZE_BYTES = 2 << 30
ONCE_A_DAY = {("POST", "/api/support/ems/application-logs")}
ONLY_WARNED_OF = {
    "/api/cluster/nodes",
    "/api/storage/aggregates",
    "/api/support/ems/application-logs",
    "/api/svm/peers",
}
"""Requests of Trident that may fail: serial numbers, kinds of disks, peers, and its daily report."""
DRIVERS = ("ontap-nas", "ontap-nas-flexgroup")


def backend(cluster: Double, driver: str) -> dict[str, Any]:
    """Return the backend that the role `trident` writes for the site, with the login instead
    of the name of the Secret.
    """
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)  # noqa: S701 - this is YAML
    environment.filters |= {"to_json": json.dumps, "combine": lambda one, other: {**one, **other}}
    text = environment.from_string((ROLES / "trident" / "templates" / "backend.yml.j2").read_text()).render(
        trident_backend={"name": "a800-nas", "driver": driver, "data_lif": LIF},
        trident_namespace="trident",
        trident_management_lif="127.0.0.1",
        trident_management_port=cluster.port,
        trident_svm="svm_ai",
        trident_export_cidrs=["192.168.11.0/24"],
    )
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]
    assert spec.pop("credentials") == {"name": "ontap-credentials"}
    assert spec.pop("deletionPolicy") == "retain"
    return spec | {"username": "trident", "password": TRIDENT_PASSWORD}


@pytest.fixture(autouse=True)
def _program() -> None:
    programs.trident()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Trident]:
    """Yield a Trident with registered nodes."""
    with trident.running(tmp_path) as started:
        for name, address in NODES.items():
            started.add_node(name, address)
        yield started


@pytest.fixture
def network() -> Iterator[nfs.Network]:
    """Yield the network with the storage system's data LIF and the nodes."""
    with nfs.network(LIF, NODES) as made:
        yield made


@pytest.fixture
def served(prepared: Double, network: nfs.Network, tmp_path: Path) -> Iterator[Double]:
    """Yield a cluster on which the role has run, and whose volumes are served at its data LIF."""
    folder = tmp_path / "disks"
    folder.mkdir()
    exports = nfs.Exports(network, folder)
    exports.start()
    prepared.store.disks = exports
    yield prepared
    exports.stop()


def volumes(cluster: Double) -> dict[str, dict[str, Any]]:
    """Return the volumes of the cluster by name."""
    return {record["name"]: record for record in cluster.store.collections["storage/volumes"]}


def parameters(driver: str) -> dict[str, str]:
    """Return the parameters of a storage class of muster."""
    return {"backendType": driver, "storagePools": "a800-nas:.*", "snapshots": "true"}


async def live(cluster: Double, running: Trident, driver: str) -> None:
    """Do each operation on a volume once. Raises the first failure with Trident's message."""
    error = running.add_backend(backend(cluster, driver))
    assert not error, error
    controller, options = running.controller, parameters(driver)
    volume = await controller.create_volume("pvc-data", SIZE_BYTES, options)
    await controller.publish_volume(volume, "dgx-1")
    snapshot = await controller.create_snapshot("before", volume)
    restored = await controller.create_volume("pvc-restored", SIZE_BYTES, options, snapshot=snapshot)
    cloned = await controller.create_volume("pvc-cloned", SIZE_BYTES, options, volume=volume)
    assert await controller.expand_volume(volume, 2 * SIZE_BYTES) == 2 * SIZE_BYTES
    assert volumes(cluster)["muster_pvc_data"]["size"] == 2 * SIZE_BYTES
    for name in (cloned, restored):
        await controller.delete_volume(name)
    await controller.delete_snapshot(snapshot)
    await controller.unpublish_volume(volume, "dgx-1")
    await controller.delete_volume(volume)
    running.delete_backend("a800-nas")


@pytest.mark.parametrize("driver", DRIVERS)
async def test_volumes_snapshots_and_clones_come_and_go(
    prepared: Double, running: Trident, driver: str
) -> None:
    await live(prepared, running, driver)
    assert prepared.refused == set()
    assert volumes(prepared) == {}
    requested = {(request.method, endpoint(request.path)) for request in prepared.requests}
    assert requested - ONCE_A_DAY <= LIFE, "the role and its test go by what Trident asks"
    assert driver != "ontap-nas" or requested - ONCE_A_DAY == LIFE


def granted() -> list[str]:
    """Return the endpoints in the role of Trident's account with NFS."""
    return [privilege["path"] for privilege in privileges()]


@pytest.mark.parametrize("path", sorted(set(granted()) - ONLY_WARNED_OF))
async def test_with_one_right_less_trident_fails_and_names_it(
    prepared: Double, running: Trident, path: str
) -> None:
    (role,) = prepared.store.collections["security/roles"]
    role["privileges"] = [each for each in role["privileges"] if each["path"] != path]
    with pytest.raises((AssertionError, GRPCError)) as failure:
        await live(prepared, running, "ontap-nas")
    named = re.findall(r"\[(?:GET|POST|PATCH|DELETE) (\S+)\]\[403\]", str(failure.value))
    assert {"/api" + re.sub(r"/{[^}]*}", "", name) for name in named} == {path}
    assert "not authorized for that command" in str(failure.value)


async def test_bytes_written_on_one_node_are_read_on_another_that_may_mount(
    served: Double, running: Trident, network: nfs.Network, tmp_path: Path
) -> None:
    error = running.add_backend(backend(served, "ontap-nas"))
    assert not error, error
    controller, options = running.controller, parameters("ontap-nas")
    volume = await controller.create_volume("pvc-data", SIZE_BYTES, options)
    for node in ("dgx-1", "dgx-2"):
        answer = await controller.publish_volume(volume, node)
    assert (answer["nfsServerIp"], answer["nfsPath"]) == (LIF, "/muster_pvc_data")

    folder = answer["nfsPath"]
    early, late = os.urandom(nfs.LARGEST_FILE_BYTES), os.urandom(nfs.LARGEST_FILE_BYTES)
    assert network.write("dgx-1", f"{folder}/early", early, tmp_path) == ""
    assert network.read("dgx-2", f"{folder}/early") == (early, "")
    nothing, read_error = network.read("dgx-3", f"{folder}/early")
    assert nothing == b""
    assert "NFS4ERR_NOENT" in read_error, "a node that Trident has published nothing to sees no volume"

    snapshot = await controller.create_snapshot("before", volume)
    assert network.write("dgx-2", f"{folder}/late", late, tmp_path) == ""
    restored = await controller.create_volume("pvc-restored", SIZE_BYTES, options, snapshot=snapshot)
    cloned = await controller.create_volume("pvc-cloned", SIZE_BYTES, options, volume=volume)
    for name, expected in ((restored, b""), (cloned, late)):
        copied = (await controller.publish_volume(name, "dgx-1"))["nfsPath"]
        assert network.read("dgx-1", f"{copied}/early") == (early, "")
        assert network.read("dgx-1", f"{copied}/late")[0] == expected

    await controller.unpublish_volume(volume, "dgx-2")
    assert network.read("dgx-2", f"{folder}/early")[0] == b""
    assert network.read("dgx-1", f"{folder}/early") == (early, "")
