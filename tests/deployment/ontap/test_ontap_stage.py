"""The stage `ontap` through the front door: a site file, `muster install`, and a cluster on loopback."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.waiting import DEADLINE_SECONDS
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.ontap.conftest import TRIDENT_PASSWORD
from tests.deployment.ontap.double import Double

pytestmark = pytest.mark.installer

SITE = """schema: 1
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
    licenses: [nfs]
    license_codes: {{env: LICENSE_CODES}}
    interface_groups:
      - {{node: a800-01, ports: [e5a, e5b]}}
      - {{node: a800-02, ports: [e5a, e5b], distribution: ip}}
    vlans:
      - {{node: a800-01, parent: a0a, id: 3111}}
      - {{node: a800-02, parent: a0a, id: 3111}}
    broadcast_domain: nfs_3111
    svm: svm_ai
    aggregates: [aggr1_a800_01, aggr1_a800_02]
    svm_management_lif:
      {{name: svm_mgmt, address: 10.61.1.11, netmask: 255.255.255.0, home_node: a800-01, home_port: e0M}}
    data_lifs:
      - {{name: nfs_1, address: 192.168.11.11, netmask: 255.255.255.0, home_node: a800-01, home_port: a0a-3111}}
      - {{name: nfs_2, address: 192.168.11.12, netmask: 255.255.255.0, home_node: a800-02, home_port: a0a-3111}}
    routes: [{{destination: 0.0.0.0/0, gateway: 192.168.11.1}}]
    dns: {{domains: [example.com], servers: [192.168.11.2]}}
    nfs_versions: ["4.1"]
    export_policy: dgx
    export_cidrs: [192.168.11.0/24]
    qos_policies: [{{name: research, max_iops: 50000}}]
    snapshot_policies: [{{name: datasets, copies: [{{schedule: daily, count: 7}}]}}]
    trident_username: provisioner
    trident_password: {{env: TRIDENT_PASSWORD}}
    trident_role: provisioning
    trident_protocols: [nfs, iscsi]
network:
  mtu: 8900
not_applicable:
  trident: this test is about the storage system
  orchestrator: this test is about the storage system
vars:
  teardown_hosts: false
{more}
"""
ONE = ("--from", "ontap", "--until", "ontap")
CODE = "ABCDEFGHIJKLMNOPQRSTUVWXYZAB"


@pytest.mark.quick
def test_the_site_file_reaches_every_part_of_the_storage_and_teardown_keeps_the_data(
    cluster: Double, site: SiteUnderTest, tmp_path: Path
) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_bytes(cluster.authority.pem)
    values = {"port": cluster.port, "authority": authority}
    site.write(SITE.format(**values, more=""))
    site.environment |= {
        "ONTAP_PASSWORD": cluster.password,
        "TRIDENT_PASSWORD": TRIDENT_PASSWORD,
        "LICENSE_CODES": f"{CODE}, {CODE}",
    }
    done = site.muster("install", *ONE)
    assert done.returncode == 0, done.stderr

    held = cluster.store.collections
    interfaces = {each["name"]: each for each in held["network/ip/interfaces"]}
    assert {name: each["ip"]["address"] for name, each in interfaces.items()} == {
        "svm_mgmt": "10.61.1.11",
        "nfs_1": "192.168.11.11",
        "nfs_2": "192.168.11.12",
    }
    assert interfaces["svm_mgmt"]["service_policy"]["name"] == "default-management"
    domain = next(each for each in held["network/ethernet/broadcast-domains"] if each["name"] == "nfs_3111")
    assert domain["mtu"] == 8900
    assert {(each["node"]["name"], each["name"]) for each in domain["ports"]} == {
        ("a800-01", "a0a-3111"),
        ("a800-02", "a0a-3111"),
    }
    (service,) = held["protocols/nfs/services"]
    assert (service["protocol"]["v3_enabled"], service["protocol"]["v41_enabled"]) == (False, True)
    (policy,) = held["protocols/nfs/export-policies"]
    assert policy["name"] == "dgx"
    assert [[each["match"] for each in rule["clients"]] for rule in policy["rules"]] == [["192.168.11.0/24"]]
    (account,) = held["security/accounts"]
    assert (account["name"], account["role"]["name"], account["password"]) == (
        "provisioner",
        "provisioning",
        TRIDENT_PASSWORD,
    )
    (role,) = held["security/roles"]
    assert "/api/storage/luns" in {each["path"] for each in role["privileges"]}
    for path, names in (
        ("network/ip/routes", 1),
        ("name-services/dns", 1),
        ("storage/qos/policies", 1),
        ("storage/snapshot-policies", 1),
    ):
        assert len(held[path]) == names

    cluster.store.add_volume("trident_pvc_1", "svm_ai")
    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert held["security/accounts"] == []
    assert [each["name"] for each in held["svm/svms"]] == ["svm_ai"]
    assert [each["name"] for each in held["storage/volumes"]] == ["trident_pvc_1"]

    site.write(SITE.format(**values, more="  ontap_uninstall_svm: true"))
    refused = site.muster("teardown", "--yes")
    assert refused.returncode == 1
    assert "holds 1 volume(s): trident_pvc_1" in refused.stderr
    assert [each["name"] for each in held["storage/volumes"]] == ["trident_pvc_1"]

    for log in site.state.rglob("*"):
        text = log.read_text(errors="replace") if log.is_file() else ""
        for secret in (TRIDENT_PASSWORD, cluster.password, CODE):
            assert secret not in text, log


def set_up(cluster: Double) -> dict[str, list[str]]:
    """Return the names of the cluster's records, by collection."""
    held = cluster.store.collections
    return {path: sorted(str(each.get("name", each)) for each in records) for path, records in held.items()}


@pytest.mark.parametrize("changes", [3, 9])
def test_a_stage_that_was_killed_half_way_is_finished_by_resume(
    cluster: Double, site: SiteUnderTest, tmp_path: Path, changes: int
) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_bytes(cluster.authority.pem)
    site.write(SITE.format(port=cluster.port, authority=authority, more=""))
    site.environment |= {
        "ONTAP_PASSWORD": cluster.password,
        "TRIDENT_PASSWORD": TRIDENT_PASSWORD,
        "LICENSE_CODES": f"{CODE}, {CODE}",
    }
    running = site.start("install", *ONE)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(cluster.changes()) < changes:
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=DEADLINE_SECONDS)
    assert cluster.store.collections["security/accounts"] == []
    planned = {each["stage"]: each for each in json.loads(site.call("plan", "--json").stdout)["stages"]}
    assert planned["ontap"]["reason"].startswith("interrupted")

    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "ontap: verified" in resumed.stderr
    finished = set_up(cluster)
    again = site.muster("install", *ONE)
    assert again.returncode == 0, again.stderr
    assert " 0 changed" in again.stderr
    assert set_up(cluster) == finished
    (account,) = cluster.store.collections["security/accounts"]
    assert account["password"] == TRIDENT_PASSWORD
