"""The files and scripts that the role host_network writes for the interfaces of a site file, without a host."""

import configparser
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.host_network_filters import filters

FILTERS = filters()
CONNECTIONS = "/etc/NetworkManager/system-connections"
OURS = "/etc/netplan/90-muster.yaml"
ROCE = "/etc/systemd/system/muster-roce.service"
DECLARED = {"storage": {"cidr": "192.168.11.0/24"}, "office": {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}}
BOND = {"members": ["eth1", "eth2"], "mtu": 9000}
VLAN = {"parent": "bond0", "vlan": 7, "mtu": 8000, "network": "storage", "address": "192.168.11.31"}
PORT = {"dhcp4": False, "dhcp6": False}
STATIC = {"dhcp4": False}
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
            "ethernets": {"eth1": PORT | {"mtu": 9000}, "eth2": PORT | {"mtu": 9000}},
            "bonds": {"bond0": {"mtu": 9000, "interfaces": ["eth1", "eth2"], "parameters": LACP}},
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
            "ethernets": {"eth1": PORT},
            "bonds": {
                "bond0": {
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
    "an interface without an address": (
        {"eth1": {"mtu": 9000}, "eth2": {"roce": False}},
        {"ethernets": {"eth1": {"mtu": 9000}, "eth2": {}}},
        {
            "eth1": {
                "connection": {"type": "ethernet", "interface-name": "eth1"},
                "ethernet": {"mtu": "9000"},
                "ipv4": {"method": "disabled"},
            },
            "eth2": {
                "connection": {"type": "ethernet", "interface-name": "eth2"},
                "ipv4": {"method": "disabled"},
            },
        },
    ),
}


@pytest.mark.parametrize("name", RENDERED)
def test_both_managers_get_the_same_interfaces(name: str) -> None:
    interfaces, netplan, connections = RENDERED[name]
    files = FILTERS["interface_files"](interfaces, DECLARED, "netplan", {})
    assert yaml.safe_load(files.pop(OURS))["network"] == {"version": 2, **netplan}
    assert files == {}
    written = FILTERS["interface_files"](interfaces, DECLARED, "NetworkManager", {})
    assert set(written) == {f"{CONNECTIONS}/muster-{each}.nmconnection" for each in connections}
    ports = {port for entry in interfaces.values() for port in entry.get("members", [])}
    for each, sections in connections.items():
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(written[f"{CONNECTIONS}/muster-{each}.nmconnection"])
        found = {section: dict(parser[section]) for section in parser.sections()}
        assert found.pop("ipv6", None) == (None if each in ports else {"method": "link-local"})
        assert found["connection"].pop("id") == f"muster-{each}"
        assert found["connection"].pop("autoconnect-priority") == "100"
        assert found == sections


def test_lossless_roce_is_a_unit_that_is_removed_with_the_last_port() -> None:
    text = FILTERS["with_roce"]({}, {"bond0": BOND | {"roce": True}, "eth3": {"mtu": 9000}}, 3, 26)[ROCE]
    assert [line for line in text.splitlines() if "eth1" in line] == [
        "ExecStart=/bin/sh -c 'exec mlnx_qos -i eth1 --trust dscp'",
        "ExecStart=/bin/sh -c 'exec mlnx_qos -i eth1 --dscp2prio set,26,3'",
        "ExecStart=/bin/sh -c 'exec mlnx_qos -i eth1 --pfc 0,0,0,1,0,0,0,0'",
        "ExecStart=/bin/sh -c 'echo 1 > /sys/class/net/eth1/ecn/roce_np/enable/3'",
        "ExecStart=/bin/sh -c 'echo 1 > /sys/class/net/eth1/ecn/roce_rp/enable/3'",
    ]
    assert "eth2" in text
    assert "eth3" not in text
    assert FILTERS["with_roce"]({}, {"eth3": {"mtu": 9000}}, 3, 26) == {ROCE: ""}
    script = FILTERS["change_script"]
    lines = script({ROCE: text}, "netplan", [], {}).splitlines()
    assert lines[2:] == [
        f"chmod 0644 {ROCE}",
        "netplan apply",
        "systemctl daemon-reload",
        "systemctl enable --quiet muster-roce.service",
        "systemctl restart muster-roce.service",
    ]
    assert script({ROCE: ""}, "netplan", [], {}).splitlines()[1:] == [
        "systemctl disable --now --quiet muster-roce.service || true",
        f"rm -f {ROCE}",
        "netplan apply",
    ]


def test_the_script_of_a_change_ends_at_the_first_error_and_applies_last(tmp_path: Path) -> None:
    target = tmp_path / "90 it's.yaml"
    gone = tmp_path / "gone"
    gone.touch()
    target.touch(mode=0o644)
    text = FILTERS["change_script"](
        {str(target): "a: 'b'\n", str(gone): ""}, "netplan", ["bond0"], {"eth1": 1500}
    )
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
    missing = FILTERS["change_script"]({str(tmp_path / "no" / "x"): "a"}, "netplan", [], {})
    broken = subprocess.run(["sh", "-c", programs + missing], capture_output=True, text=True, check=False)
    assert broken.returncode != 0
    assert "netplan" not in broken.stdout


def test_a_way_back_restores_the_rest_after_an_error(tmp_path: Path) -> None:
    path = f"{CONNECTIONS}/muster-{{}}.nmconnection"
    lost, written = str(tmp_path / "no" / "x"), tmp_path / "written"
    files = {lost: "a", str(written): "b", path.format("eth1"): "", path.format("eth0"): ""}
    brought = {path.format("eth1"): "c", path.format("eth0"): "d"}
    text = FILTERS["change_script"](files, "NetworkManager", [], {}, to_the_end=True)
    up = FILTERS["change_script"](brought, "NetworkManager", [], {}, to_the_end=True).splitlines()[-3:]
    nmcli = 'nmcli() { echo $*; [ "$4" != muster-eth1 ] || return 4; }\nrm() { :; }\n'
    script = nmcli + "\n".join([*text.splitlines()[:-1], *up])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "connection reload",
        "connection up id muster-eth1",
        "connection up id muster-eth0",
    ], done.stderr
    assert done.returncode == 1
    assert written.read_text() == "b"


def test_networkmanager_gets_its_connections_by_name() -> None:
    present = {f"{CONNECTIONS}/{name}.nmconnection": "x" for name in ("muster-eth9", "office")}
    files = FILTERS["interface_files"]({"bond0": BOND}, {}, "NetworkManager", present)
    assert f"{CONNECTIONS}/office.nmconnection" not in files
    lines = FILTERS["change_script"](files, "NetworkManager", [], {}).splitlines()
    assert f"rm -f {CONNECTIONS}/muster-eth9.nmconnection" in lines
    assert lines[-4:] == [
        "nmcli connection reload",
        "nmcli connection up id muster-eth1",
        "nmcli connection up id muster-eth2",
        "nmcli connection up id muster-bond0",
    ]
