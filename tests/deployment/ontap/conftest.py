"""An ONTAP cluster on loopback and a site that uses it."""

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.certificates import Authority
from tests.deployment.ontap.double import Double
from tests.deployment.ontap.records import Store
from tests.deployment.running import Result, play, program

TRIDENT_PASSWORD = "swordfish-4858"
SITE: dict[str, Any] = {
    "ontap_aggregates": ["aggr1_a800_01", "aggr1_a800_02"],
    "ontap_interface_groups": [{"node": node, "ports": ["e5a", "e5b"]} for node in ("a800-01", "a800-02")],
    "ontap_vlans": [{"node": node, "parent": "a0a", "id": 3111} for node in ("a800-01", "a800-02")],
    "ontap_broadcast_ports": ["a800-01:a0a-3111", "a800-02:a0a-3111"],
    "ontap_lifs": [
        {
            "name": f"nfs_{number}",
            "address": f"192.168.11.1{number}",
            "netmask": "255.255.255.0",
            "home_node": f"a800-0{number}",
            "home_port": "a0a-3111",
        }
        for number in (1, 2)
    ],
    "ontap_routes": [{"destination": "0.0.0.0/0", "gateway": "192.168.11.1"}],
    "ontap_dns_domains": ["example.com"],
    "ontap_dns_servers": ["192.168.11.2"],
    "ontap_export_rules": [
        {"clients": ["192.168.11.0/24", "192.168.12.0/24"]},
        {"clients": ["10.61.1.7"], "write": ["never"]},
    ],
    "ontap_qos_policies": [{"name": "research", "max_iops": 50000}],
    "ontap_snapshot_policies": [{"name": "datasets", "copies": [{"schedule": "daily", "count": 7}]}],
}


@pytest.fixture(autouse=True)
def _ansible() -> None:
    if not program("ansible-playbook").exists():
        pytest.skip("ansible-playbook is not installed beside this Python: uv sync --group installer")


@pytest.fixture(scope="session")
def authority() -> Authority:
    """Return the authority that signs the clusters' certificates."""
    return Authority()


@pytest.fixture
def cluster(authority: Authority) -> Iterator[Double]:
    """Yield an ONTAP cluster that listens."""
    double = Double(authority)
    double.start()
    yield double
    double.stop()


Run = Callable[..., Result]


def runner(cluster: Double, folder: Path) -> Run:
    """Return the function that runs the role, or one of its parts, against a cluster. Its keywords change the site."""
    authority = folder / "authority.pem"
    authority.write_bytes(cluster.authority.pem)
    inventory = folder / "inventory.yml"
    inventory.write_text(
        yaml.safe_dump({"all": {"hosts": {"localhost": {"ansible_python_interpreter": sys.executable}}}})
    )

    def run(*arguments: str, part: str = "main", **changes: Any) -> Result:
        site = SITE | {
            "ontap_hostname": "127.0.0.1",
            "ontap_port": cluster.port,
            "ontap_password": "{{ lookup('env', 'ONTAP_PASSWORD') }}",
            "ontap_trident_password": TRIDENT_PASSWORD,
            "ontap_ca_path": str(authority),
        }
        role = {"name": "ontap", "tasks_from": part}
        task = {"name": "Include the role", "ansible.builtin.include_role": role, "vars": site | changes}
        playbook = folder / "storage.yml"
        play_ = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
        playbook.write_text(yaml.safe_dump([play_]))
        return play(
            playbook,
            folder,
            "-i",
            str(inventory),
            *arguments,
            environment={"ONTAP_PASSWORD": cluster.password},
        )

    return run


@pytest.fixture
def run(cluster: Double, tmp_path: Path) -> Run:
    """Return the function that runs the role against the cluster of this test."""
    return runner(cluster, tmp_path)


@pytest.fixture(scope="session")
def _prepared_store(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Store:
    double = Double(authority)
    double.start()
    result = runner(double, tmp_path_factory.mktemp("prepared"))()
    double.stop()
    assert result.code == 0, result.failures
    return double.store


@pytest.fixture
def prepared(cluster: Double, _prepared_store: Store) -> Double:
    """Return a cluster on which the role has run once."""
    cluster.store = copy.deepcopy(_prepared_store)
    return cluster
