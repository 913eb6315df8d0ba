"""The networks of hosts in the site file: refusals, the plan, and the variables of the role host_network."""

import json

import pytest

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.test_sites_that_cannot_work import ENVIRONMENT, HEALTHY

NETWORKS = """\
  host_networks:
    storage: {cidr: 192.168.11.0/24}
    office: {cidr: 10.9.0.0/24, gateway: 10.9.0.1}
    lab: {cidr: 10.8.0.0/24, gateway: 10.8.0.1}
    half: {cidr: 192.168.11.128/25}
"""


def described(interfaces: str) -> str:
    """Return the healthy site with networks, and with these interfaces of dgx01."""
    before = "model: dgx-a100, roles: [gpu]}"
    assert HEALTHY.count(before) == HEALTHY.count("  mtu: 9000\n") == 1
    text = HEALTHY.replace("  mtu: 9000\n", f"  mtu: 9000\n{NETWORKS}")
    return text.replace(before, f"model: dgx-a100, roles: [gpu], interfaces: {{\n{interfaces}\n  }}}}")


REFUSED = {
    "an MTU of a VLAN above its bond": (
        "bond0: {members: [eth1, eth2], mtu: 1500},\nbond0.7: {parent: bond0, vlan: 7, mtu: 9000}",
        "bond0.7 has the MTU 9000, and bond0 below it 1500: give bond0 at least",
    ),
    "an MTU of a VLAN above the MTU of the kernel": (
        "eth1: {network: storage, address: 192.168.11.31},\neth1.7: {parent: eth1, vlan: 7, mtu: 1501}",
        "eth1.7 has the MTU 1501, and eth1 below it 1500",
    ),
    "a member of two bonds": (
        "bond0: {members: [eth1, eth2]},\nbond1: {members: [eth2, eth3]}",
        "eth2 is a member of bond0 and of bond1: remove it from one of them",
    ),
    "a member with an entry of its own": (
        "bond0: {members: [eth1, eth2]},\neth2: {mtu: 9000}",
        "eth2 is a member of bond0 and has an entry of its own",
    ),
    "a bond that is a VLAN": (
        "eth1: {mtu: 9000},\neth1.7: {members: [eth2], parent: eth1, vlan: 7}",
        "eth1.7 has members and a parent",
    ),
    "a VLAN without a parent": (
        "bond0.7: {parent: bond0, vlan: 7}",
        "the parent of bond0.7, bond0, is no bond and no interface of its host: add it",
    ),
    "a VLAN over a VLAN": (
        "eth1: {mtu: 9000},\neth1.7: {parent: eth1, vlan: 7},\neth1.8: {parent: eth1.7, vlan: 8}",
        "the parent of eth1.8, eth1.7, is no bond and no interface of its host",
    ),
    "two VLANs of one id": (
        "eth1: {mtu: 9000},\neth1.7: {parent: eth1, vlan: 7},\nnfs: {parent: eth1, vlan: 7}",
        "nfs is the VLAN 7 of eth1, as eth1.7: remove one of them",
    ),
    "a parent without a VLAN": ("eth1.7: {parent: eth1}", "`vlan` is missing"),
    "an address outside of the declared network": (
        "eth1: {network: storage, address: 192.168.12.31}",
        "eth1: 192.168.12.31 is no address of a host in the network storage (192.168.11.0/24)",
    ),
    "the address of the network itself": (
        "eth1: {network: storage, address: 192.168.11.0}",
        "192.168.11.0 is no address of a host",
    ),
    "the broadcast address": (
        "eth1: {network: storage, address: 192.168.11.255}",
        "192.168.11.255 is no address of a host",
    ),
    "an unknown network": (
        "eth1: {network: fabric, address: 192.168.11.31}",
        "eth1: there is no network fabric: declare it in network.host_networks",
    ),
    "an address without a network": ("eth1: {address: 192.168.11.31}", "`network` is missing"),
    "one address on two interfaces": (
        "eth1: {network: storage, address: 192.168.11.31},\neth2: {network: storage, address: 192.168.11.31}",
        "eth2 has the address of eth1, 192.168.11.31",
    ),
    "the address of the storage": (
        "eth1: {network: storage, address: 192.168.11.11}",
        "nfs_01 has the address of eth1 of dgx01, 192.168.11.11",
    ),
    "the address of the gateway": (
        "eth1: {network: office, address: 10.9.0.1}",
        "eth1: 10.9.0.1 is the gateway of the network office: correct one of them",
    ),
    "two interfaces in one network": (
        "eth1: {network: storage, address: 192.168.11.31},\neth2: {network: storage, address: 192.168.11.32}",
        "eth1 and eth2 are in networks that overlap (192.168.11.0/24 and 192.168.11.0/24)",
    ),
    "two interfaces in overlapping networks": (
        "eth1: {network: storage, address: 192.168.11.31},\neth2: {network: half, address: 192.168.11.132}",
        "eth1 and eth2 are in networks that overlap (192.168.11.0/24 and 192.168.11.128/25)",
    ),
    "two default routes": (
        "eth1: {network: office, address: 10.9.0.31},\neth2: {network: lab, address: 10.8.0.31}",
        "dgx01: eth1 and eth2 are in networks with a gateway: a host has one default route",
    ),
    "RoCE on a VLAN": (
        "eth1: {mtu: 9000},\neth1.7: {parent: eth1, vlan: 7, roce: true}",
        "eth1.7 is a VLAN: set roce for eth1 below it",
    ),
    "an unknown mode": ("bond0: {members: [eth1], mode: lacp}", "lacp is none of 802.3ad, active-backup"),
    **{
        f"the name {name}": (f"{name}: {{mtu: 9000}}", "does not have the form")
        for name in (
            *("eth1234567890123", "lo", "all", "default", "bonding_masters", "eth..7", "eth7."),
            '"eth1\\n"',
        )
    },
    "a reserved name of a member": ("bond0: {members: [lo]}", "'lo' does not have the form"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_cannot_work_is_refused_with_its_line(site: SiteUnderTest, name: str) -> None:
    interfaces, says = REFUSED[name]
    site.write(described(interfaces))
    site.environment |= ENVIRONMENT
    done = site.call("plan")
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert f"{site.file}:" in done.stderr


OFFICE = "office: {cidr: 10.9.0.0/24, gateway: 10.9.0.1}"
NO_NETWORKS = {
    "{cidr: 10.9.0.0/24, gateway: 10.9.1.1}": "office: the gateway 10.9.1.1 is no host of 10.9.0.0/24",
    "{cidr: 10.9.0.1/32, gateway: 10.9.0.1}": "office: 10.9.0.1/32 has no address beside its gateway",
    "{cidr: 0.0.0.0/0}": "cidr: 0.0.0.0/0 is the unspecified network",
    "{cidr: 0.0.0.0/8}": "cidr: 0.0.0.0/8 is the unspecified network",
    "{cidr: 127.0.0.0/8}": "cidr: 127.0.0.0/8 is loopback",
    "{cidr: 224.0.0.0/24}": "cidr: 224.0.0.0/24 is multicast",
    '{cidr: "10.9.0.0/24\\n"}': "does not have the form",
}


@pytest.mark.parametrize("entry", NO_NETWORKS)
def test_a_network_that_no_host_can_use_is_refused(site: SiteUnderTest, entry: str) -> None:
    text = described("eth1: {mtu: 9000}")
    assert OFFICE in text
    site.write(text.replace(OFFICE, f"office: {entry}"))
    site.environment |= ENVIRONMENT
    done = site.call("plan")
    assert done.returncode == 2
    assert NO_NETWORKS[entry] in done.stderr


@pytest.mark.parametrize("seconds", [0, 1, 29, '"+5"'])
def test_a_way_back_before_the_change_is_refused(site: SiteUnderTest, seconds: object) -> None:
    site.environment |= ENVIRONMENT
    site.write(described("eth1: {mtu: 9000}") + f"vars: {{host_network_seconds: {seconds}}}\n")
    assert "vars.host_network_seconds: a host cannot apply a change in" in site.call("plan").stderr
    site.write(described("eth1: {mtu: 9000}") + "vars: {host_network_seconds: 30}\n")
    assert site.call("plan").returncode == 0


def test_the_plan_notes_a_gateway_that_is_a_host_of_the_site(site: SiteUnderTest) -> None:
    text = described("eth1: {network: office, address: 10.9.0.31}").replace("10.61.1.32", "10.9.0.1")
    site.write(text)
    site.environment |= ENVIRONMENT
    note = "the gateway of network.host_networks.office is dgx02 (10.9.0.1): muster does not make it a router"
    done = site.call("plan")
    assert done.returncode == 0, done.stderr
    assert note in done.stdout


def test_the_role_has_the_values_of_the_site(site: SiteUnderTest) -> None:
    site.environment |= ENVIRONMENT
    before = described("eth1: {network: office, address: 10.9.0.31, roce: true}")
    site.write(before.replace("  mtu: 9000\n", "  mtu: 9000\n  roce: {cos: 5, dscp: 40}\n"))
    values = json.loads(site.call("inventory").stdout)["all"]["vars"]
    assert values["host_network_networks"]["office"] == {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}
    assert (values["host_network_roce_priority"], values["host_network_roce_dscp"]) == (5, 40)
    assert "host_network_reaches_storage" not in values  # the stage ontap comes later
    site.write(before + "not_applicable: {ontap: prepared by the storage team}\n")
    values = json.loads(site.call("inventory").stdout)["all"]["vars"]
    assert values["host_network_reaches_storage"] is True


def test_the_plan_names_the_change_and_the_way_back(site: SiteUnderTest) -> None:
    site.environment |= ENVIRONMENT
    site.write(HEALTHY)
    without = {each["stage"]: each for each in json.loads(site.call("plan", "--json").stdout)["stages"]}
    assert without["host_network"]["decision"] == "not applicable"
    site.write(
        described(
            "bond0: {members: [eth1, eth2], mtu: 9000},\n"
            "bond0.7: {parent: bond0, vlan: 7, mtu: 9000, network: storage, address: 192.168.11.31}"
        )
    )
    planned = site.call("plan")
    assert planned.returncode == 0, planned.stderr
    assert "THE NETWORK OF A HOST IS DOWN FOR SECONDS" in planned.stdout
    assert "restores its former network within 120 seconds" in planned.stdout
    hosts = json.loads(site.call("inventory").stdout)["all"]["hosts"]
    assert hosts["dgx01"]["host_network_interfaces"]["bond0.7"]["vlan"] == 7
    assert "host_network_interfaces" not in hosts["dgx02"]
