"""The networks of hosts: refusals of the site file, and the files that the role host_network writes, without a host."""

import configparser
import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.test_sites_that_cannot_work import ENVIRONMENT, HEALTHY

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "roles" / "host_network" / "filter_plugins" / "host_network.py"
CONNECTIONS = "/etc/NetworkManager/system-connections"
OURS = "/etc/netplan/90-muster.yaml"
NETWORKS = """\
  host_networks:
    storage: {cidr: 192.168.11.0/24}
    office: {cidr: 10.9.0.0/24, gateway: 10.9.0.1}
    lab: {cidr: 10.8.0.0/24, gateway: 10.8.0.1}
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
    "two default routes": (
        "eth1: {network: office, address: 10.9.0.31},\neth2: {network: lab, address: 10.8.0.31}",
        "dgx01: eth1 and eth2 are in networks with a gateway: a host has one default route",
    ),
    "RoCE on a VLAN": (
        "eth1: {mtu: 9000},\neth1.7: {parent: eth1, vlan: 7, roce: true}",
        "eth1.7 is a VLAN: set roce for eth1 below it",
    ),
    "an unknown mode": ("bond0: {members: [eth1], mode: lacp}", "lacp is none of 802.3ad, active-backup"),
    "a name that is too long": ("eth1234567890123: {mtu: 9000}", "does not have the form"),
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


def test_a_gateway_outside_of_its_network_is_refused(site: SiteUnderTest) -> None:
    site.write(described("eth1: {mtu: 9000}").replace("gateway: 10.9.0.1", "gateway: 10.9.1.1"))
    site.environment |= ENVIRONMENT
    assert (
        "network.host_networks.office: the gateway 10.9.1.1 is no host of 10.9.0.0/24"
        in site.call("plan").stderr
    )


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


def plugin() -> Any:
    spec = importlib.util.spec_from_file_location("host_network", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DECLARED = {"storage": {"cidr": "192.168.11.0/24"}, "office": {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}}
BOND = {"members": ["eth1", "eth2"], "mtu": 9000}
VLAN = {"parent": "bond0", "vlan": 7, "mtu": 8000, "network": "storage", "address": "192.168.11.31"}
STATIC = {"dhcp4": False, "dhcp6": False}
LACP = {
    "mode": "802.3ad",
    "lacp-rate": "fast",
    "mii-monitor-interval": 100,
    "transmit-hash-policy": "layer3+4",
}
# Names and values are those that netplan.io 1.1 of Ubuntu 24.04 generates from the same interfaces.
RENDERED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, dict[str, str]]]]] = {
    "a bond with LACP and a VLAN": (
        {"bond0": BOND, "bond0.7": VLAN},
        {
            "ethernets": {"eth1": STATIC | {"mtu": 9000}, "eth2": STATIC | {"mtu": 9000}},
            "bonds": {"bond0": STATIC | {"mtu": 9000, "interfaces": ["eth1", "eth2"], "parameters": LACP}},
            "vlans": {
                "bond0.7": STATIC | {"mtu": 8000, "id": 7, "link": "bond0", "addresses": ["192.168.11.31/24"]}
            },
        },
        {
            "eth1": {
                "connection": {
                    "type": "ethernet",
                    "interface-name": "eth1",
                    "master": "bond0",
                    "slave-type": "bond",
                },
                "ethernet": {"mtu": "9000"},
            },
            "eth2": {
                "connection": {
                    "type": "ethernet",
                    "interface-name": "eth2",
                    "master": "bond0",
                    "slave-type": "bond",
                },
                "ethernet": {"mtu": "9000"},
            },
            "bond0": {
                "connection": {"type": "bond", "interface-name": "bond0"},
                "ethernet": {"mtu": "9000"},
                "bond": {
                    "mode": "802.3ad",
                    "miimon": "100",
                    "lacp_rate": "fast",
                    "xmit_hash_policy": "layer3+4",
                },
                "ipv4": {"method": "disabled"},
            },
            "bond0.7": {
                "connection": {"type": "vlan", "interface-name": "bond0.7"},
                "ethernet": {"mtu": "8000"},
                "vlan": {"id": "7", "parent": "bond0"},
                "ipv4": {"method": "manual", "address1": "192.168.11.31/24"},
            },
        },
    ),
    "a bond without LACP": (
        {"bond0": {"members": ["eth1"], "mode": "active-backup"}},
        {
            "ethernets": {"eth1": STATIC},
            "bonds": {
                "bond0": STATIC
                | {
                    "interfaces": ["eth1"],
                    "parameters": {"mode": "active-backup", "mii-monitor-interval": 100},
                }
            },
        },
        {
            "eth1": {
                "connection": {
                    "type": "ethernet",
                    "interface-name": "eth1",
                    "master": "bond0",
                    "slave-type": "bond",
                }
            },
            "bond0": {
                "connection": {"type": "bond", "interface-name": "bond0"},
                "bond": {"mode": "active-backup", "miimon": "100"},
                "ipv4": {"method": "disabled"},
            },
        },
    ),
    "an interface with the default route": (
        {"eth1": {"network": "office", "address": "10.9.0.31"}},
        {
            "ethernets": {
                "eth1": STATIC
                | {"addresses": ["10.9.0.31/24"], "routes": [{"to": "0.0.0.0/0", "via": "10.9.0.1"}]}
            }
        },
        {
            "eth1": {
                "connection": {"type": "ethernet", "interface-name": "eth1"},
                "ipv4": {"method": "manual", "address1": "10.9.0.31/24", "gateway": "10.9.0.1"},
            }
        },
    ),
}


@pytest.mark.parametrize("name", RENDERED)
def test_both_managers_get_the_same_interfaces(name: str) -> None:
    interfaces, netplan, connections = RENDERED[name]
    files = plugin().files_of(interfaces, DECLARED, "netplan", {})
    assert yaml.safe_load(files.pop(OURS))["network"] == {"version": 2, **netplan}
    assert files == {}
    written = plugin().files_of(interfaces, DECLARED, "NetworkManager", {})
    assert set(written) == {f"{CONNECTIONS}/muster-{each}.nmconnection" for each in connections}
    for each, sections in connections.items():
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(written[f"{CONNECTIONS}/muster-{each}.nmconnection"])
        found = {section: dict(parser[section]) for section in parser.sections()}
        found.pop("ipv6", None)
        assert found["connection"].pop("id") == f"muster-{each}"
        assert found["connection"].pop("autoconnect-priority") == "100"
        assert found == sections


CLOUD = """\
network:
  version: 2
  ethernets:
    eth0: {dhcp4: true}
    eth1: {dhcp4: true, match: {macaddress: "52:54:00:00:00:01"}, set-name: eth1}
    eth2: {addresses: [10.0.0.2/24]}
"""


def test_files_of_others_lose_the_settings_of_the_named_interfaces_alone() -> None:
    path = "/etc/netplan/50-cloud-init.yaml"
    files = plugin().files_of({"bond0": BOND}, {}, "netplan", {path: CLOUD, OURS: "network: {}\n"})
    assert yaml.safe_load(files[path])["network"] == {
        "version": 2,
        "ethernets": {
            "eth0": {"dhcp4": True},
            "eth1": {"match": {"macaddress": "52:54:00:00:00:01"}, "set-name": "eth1"},
        },
    }
    again = plugin().files_of({"bond0": BOND}, {}, "netplan", files)
    assert again == files
    assert plugin().without(CLOUD, {"eth7"}) == CLOUD

    former = {path: CLOUD}
    assert plugin().before(former, files) == {path: CLOUD, OURS: ""}
    assert plugin().before(former, files | {path: "network: {version: 2}\n"}) == {OURS: ""}


def test_lossless_roce_is_a_unit_that_is_removed_with_the_last_port() -> None:
    unit = "/etc/systemd/system/muster-roce.service"
    text = plugin().with_roce({}, {"bond0": BOND | {"roce": True}, "eth3": {"mtu": 9000}}, 3, 26)[unit]
    assert [line for line in text.splitlines() if "eth1" in line] == [
        "ExecStart=/bin/sh -c 'exec mlnx_qos -i eth1 --trust dscp'",
        "ExecStart=/bin/sh -c 'exec mlnx_qos -i eth1 --dscp2prio set,26,3'",
        "ExecStart=/bin/sh -c 'exec mlnx_qos -i eth1 --pfc 0,0,0,1,0,0,0,0'",
        "ExecStart=/bin/sh -c 'echo 1 > /sys/class/net/eth1/ecn/roce_np/enable/3'",
        "ExecStart=/bin/sh -c 'echo 1 > /sys/class/net/eth1/ecn/roce_rp/enable/3'",
    ]
    assert "eth2" in text
    assert "eth3" not in text
    assert plugin().with_roce({}, {"eth3": {"mtu": 9000}}, 3, 26) == {unit: ""}


def shown(name: str, mtu: int = 1500, address: str = "", **more: Any) -> dict[str, Any]:
    local, _, prefix = address.partition("/")
    addresses = [{"family": "inet", "local": local, "prefixlen": int(prefix)}] if address else []
    return {"ifname": name, "mtu": mtu, "operstate": "UP", "addr_info": addresses} | more


WHOLE = [
    shown("eth1", 9000, master="bond0"),
    shown("eth2", 9000, master="bond0"),
    shown("bond0", 9000, linkinfo={"info_kind": "bond", "info_data": {"mode": "802.3ad"}}),
    shown("bond0.7", 8000, "192.168.11.31/24", linkinfo={"info_kind": "vlan", "info_data": {"id": 7}}),
]
WRONG = {
    "there is no bond0.7": [*WHOLE[:3]],
    "eth2 is no member of bond0": [WHOLE[0], shown("eth2", 9000), *WHOLE[2:]],
    "bond0.7 has the MTU 1500, not 8000": [*WHOLE[:3], shown("bond0.7", 1500, "192.168.11.31/24")],
    "bond0.7 lacks 192.168.11.31/24 (link UP)": [*WHOLE[:3], shown("bond0.7", 8000, "192.168.11.31/16")],
    "bond0 is of another mode or VLAN": [
        *WHOLE[:2],
        WHOLE[2] | {"linkinfo": {"info_data": {"mode": "balance-rr"}}},
        WHOLE[3],
    ],
    "bond0.7 is of another mode or VLAN": [*WHOLE[:3], WHOLE[3] | {"linkinfo": {"info_data": {"id": 8}}}],
}


@pytest.mark.parametrize("says", WRONG)
def test_an_interface_that_is_not_as_the_site_says_is_named(says: str) -> None:
    interfaces = {"bond0": BOND, "bond0.7": VLAN}
    assert plugin().problems_of(WHOLE, interfaces, DECLARED) == []
    assert plugin().problems_of(WRONG[says], interfaces, DECLARED) == [says]


def test_a_port_without_a_cable_is_named() -> None:
    dead = [WHOLE[0], WHOLE[2] | {"flags": ["NO-CARRIER", "BROADCAST"]}]
    assert plugin().unlinked(dead, {"bond0": BOND, "bond0.7": VLAN}) == ["bond0 has no link"]
    assert plugin().unlinked(WHOLE, {"bond0": BOND}) == []


def test_the_script_of_a_change_ends_at_the_first_error_and_applies_last(tmp_path: Path) -> None:
    target = tmp_path / "90 it's.yaml"
    gone = tmp_path / "gone"
    gone.touch()
    text = plugin().script_of({str(target): "a: 'b'\n", str(gone): ""}, "netplan", ["bond0"], {"eth1": 1500})
    programs = "ip() { echo ip $*; }\nnetplan() { echo netplan $* $(ls); }\n"
    done = subprocess.run(
        ["sh", "-c", programs + text], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "ip link delete dev bond0",
        "ip link set dev eth1 mtu 1500",
        f"netplan apply {target.name}",
    ], done.stderr
    assert target.read_text() == "a: 'b'\n"
    assert target.stat().st_mode & 0o777 == 0o600
    missing = plugin().script_of({str(tmp_path / "no" / "x"): "a"}, "netplan", [], {})
    broken = subprocess.run(["sh", "-c", programs + missing], capture_output=True, text=True, check=False)
    assert broken.returncode != 0
    assert "netplan" not in broken.stdout


def test_networkmanager_gets_its_connections_by_name() -> None:
    files = plugin().files_of(
        {"bond0": BOND}, {}, "NetworkManager", {f"{CONNECTIONS}/muster-eth9.nmconnection": "x"}
    )
    lines = plugin().script_of(files, "NetworkManager", [], {}).splitlines()
    assert f"rm -f {CONNECTIONS}/muster-eth9.nmconnection" in lines
    assert lines[-4:] == [
        "nmcli connection reload",
        "nmcli connection up id muster-eth1",
        "nmcli connection up id muster-eth2",
        "nmcli connection up id muster-bond0",
    ]
