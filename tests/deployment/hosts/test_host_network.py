"""The role host_network on a guest with interfaces of its own: a change, a change that cuts the controller off, and the
way back.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.hosts import guests, user_mode
from tests.deployment.hosts.conftest import Host, Packages
from tests.deployment.hosts.guests import Guest
from tests.deployment.hosts.scenarios import SCENARIOS, Scenario
from tests.deployment.hosts.test_uninstall import FILES
from tests.deployment.hosts.user_mode import UserModeGuest

pytestmark = pytest.mark.installer
SITE = "etc/netplan/50-site.yaml"
PROBE = "ip link add probe0 type bond && ip link add link probe0 name probe0.7 type vlan id 7"


SYSTEMS = {"ubuntu-22.04": "dgx-os-6", "ubuntu-24.04": "ubuntu-24.04"}
"""The scenario for each release of Ubuntu. Their netplan differs: 0.107 and 1.1."""


@pytest.fixture(params=SYSTEMS)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    """Return the scenario of each release."""
    return SCENARIOS[SYSTEMS[request.param]]


@pytest.fixture
def host(scenario: Scenario, packages: Packages, tmp_path: Path) -> Iterator[Host]:
    """Yield a guest with three interfaces; eth0 leads to this machine."""
    yield from booted(Guest, scenario, packages, tmp_path)


@pytest.fixture
def bonded(scenario: Scenario, packages: Packages, tmp_path: Path) -> Iterator[Host]:
    """Yield such a guest on a kernel with bonds and VLANs: that of this machine, or a kernel in user mode."""
    probed = subprocess.run(["unshare", "--net", "sh", "-c", PROBE], capture_output=True, check=False)
    if probed.returncode and user_mode.missing():
        pytest.skip(user_mode.missing())
    yield from booted(UserModeGuest if probed.returncode else Guest, scenario, packages, tmp_path)


def booted(kind: type[Guest], scenario: Scenario, packages: Packages, folder: Path) -> Iterator[Host]:
    name = f"network-{os.getpid()}"
    guest = kind(name, os.getpid(), repository=str(packages(scenario.suite)), ports=3)
    try:
        guests.create(scenario.suite, guest, ("iproute2", "netplan.io"))
        guest.run(
            "/usr/lib/systemd/systemd-networkd-wait-online", "--interface=eth0", "--timeout=250", check=True
        )
        yield Host(guest, scenario, folder)
    finally:
        guest.destroy()


def configured(host: Host, interfaces: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the variables of the role for these interfaces, and eth0 with its address."""
    management = {"network": "site", "address": host.guest.address, "mtu": 1400}
    networks = {
        "site": {"cidr": f"{host.guest.network}.0/24"},
        "data": {"cidr": "10.77.0.0/24"},
    }
    return {
        "host_network_interfaces": {"eth0": management} | interfaces,
        "host_network_networks": networks,
    }


def links(guest: Guest) -> dict[str, tuple[int, list[str]]]:
    """Return MTU and IPv4 addresses of the guest's interfaces."""
    shown = json.loads(guest.run("ip", "-json", "address", check=True).stdout)
    return {
        link["ifname"]: (
            link["mtu"],
            [
                f"{each['local']}/{each['prefixlen']}"
                for each in link["addr_info"]
                if each["family"] == "inet"
            ],
        )
        for link in shown
    }


def files(guest: Guest) -> list[str]:
    """Return the files of the guest, without the bytecode of netplan and the messages of the last return."""
    found = guest.run("sh", "-c", FILES, check=True).stdout.splitlines()
    return [
        each for each in found if "/__pycache__/" not in each and "/var/lib/muster-host-network/" not in each
    ]


OTHERS = """\
# by hand
network:
  ethernets:
    eth1: {dhcp4: false, optional: true, addresses: [10.76.0.2/24, "fd00:76::2/64"]}
    eth2:
      addresses: [10.78.0.2/24]
"""


def test_a_change_is_confirmed_or_taken_back_by_the_host_itself(host: Host) -> None:
    guest = host.guest
    other = guest.disk / "etc/netplan/60-others.yaml"
    other.write_text(OTHERS)
    other.chmod(0o600)
    guest.run("netplan", "apply", check=True)
    refused = host.play("host_network", **configured(host, {"eth9": {"mtu": 9000}}))
    assert "has no eth9: name in hosts" in refused.failures[0]
    assert "eth0, eth1, eth2" in refused.failures[0]
    assert refused.changes == []
    before = links(guest), files(guest)

    listed = {"all": {"match": {"name": "eth*"}, "dhcp4": True}}
    other.write_text(yaml.safe_dump({"network": {"ethernets": listed}}))
    unclear = host.play("host_network", **configured(host, {}))
    assert "/etc/netplan/60-others.yaml:6: `all` is also for eth0" in unclear.failures[0]
    other.write_text(OTHERS)

    right = configured(
        host, {"eth1": {"network": "data", "address": "10.77.0.2", "mtu": 9000}, "eth2": {"mtu": 8000}}
    )
    predicted = host.play("host_network", arguments=("--check",), **right)
    assert predicted.code == 0, predicted.failures
    assert predicted.changes
    assert (links(guest), files(guest)) == before
    first = host.play("host_network", **right)
    assert first.code == 0, first.failures
    after = links(guest)
    assert after["eth0"] == (1400, [f"{guest.address}/24"])
    assert after["eth1"] == (9000, ["10.77.0.2/24"])
    assert after["eth2"] == (8000, ["10.78.0.2/24"])
    assert other.read_text() == OTHERS.replace("10.76.0.2/24, ", "")
    assert "fd00:76::2" in guest.run("ip", "address", "show", "dev", "eth1", check=True).stdout
    assert not (guest.disk / "var/lib/muster-host-network").exists()
    assert "muster-host-network" not in guest.run("systemctl", "list-timers", "--all", check=True).stdout
    assert host.play("host_network", **right).changes == []

    whole = files(guest)
    wrong = configured(host, {"eth0": {"network": "data", "address": "10.77.0.99"}})
    cut_off = host.play("host_network", host_network_seconds=30, **wrong)
    assert cut_off.code != 0
    assert "It has restored its former network by itself: correct hosts." in cut_off.failures[-1]
    assert links(guest) == after
    assert files(guest) == whole
    again = host.play("host_network", **right)
    assert again.code == 0, again.failures

    removed = host.play("host_network", part="uninstall", **right)
    assert removed.code == 0, removed.failures
    assert links(guest) == before[0]
    assert files(guest) == before[1]


def test_a_file_that_netplan_refuses_is_taken_back_at_once(host: Host) -> None:
    other = host.guest.disk / "etc/netplan/60-other.yaml"
    other.write_text("network: {ethernets: {eth5: {strange: true}}}\n")
    other.chmod(0o600)
    before = links(host.guest), other.read_text()
    refused = host.play("host_network", **configured(host, {"eth1": {"mtu": 9000}}))
    assert "unknown key 'strange'" in refused.failures[-1]
    # netplan does not accept the former files either
    assert "A part of its former network could not be restored: read" in refused.failures[-1]
    assert not (host.guest.disk / "etc/netplan/90-muster.yaml").exists()
    assert (links(host.guest), other.read_text()) == before


@pytest.mark.rare
def test_bond_and_vlan_are_restored_after_a_wrong_change_and_removed(bonded: Host) -> None:
    host = bonded
    before = links(host.guest)
    wanted = configured(
        host,
        {
            "bond0": {"members": ["eth1", "eth2"], "mode": "active-backup", "mtu": 9000},
            "bond0.7": {"parent": "bond0", "vlan": 7, "mtu": 8000, "network": "data", "address": "10.77.0.2"},
        },
    )
    first = host.play("host_network", **wanted)
    assert first.code == 0, first.failures
    after = links(host.guest)
    assert (after["bond0"][0], after["eth1"][0], after["eth2"][0]) == (9000, 9000, 9000)
    assert after["bond0.7"] == (8000, ["10.77.0.2/24"])
    assert host.play("host_network", **wanted).changes == []
    # A bond with eth0 and a VLAN on it, which this machine does not have.
    wrong = configured(host, {"bond1": {"members": ["eth0"], "mode": "active-backup"}})
    del wrong["host_network_interfaces"]["eth0"]
    wrong["host_network_interfaces"]["bond1.9"] = {
        "parent": "bond1", "vlan": 9, "network": "site", "address": host.guest.address,
    }  # fmt: skip
    cut_off = host.play("host_network", host_network_seconds=120, **wrong)
    assert "It has restored its former network by itself" in cut_off.failures[-1]
    assert links(host.guest) == after
    removed = host.play("host_network", part="uninstall", **wanted)
    assert removed.code == 0, removed.failures
    assert links(host.guest) == before


SWITCH = """\
set -e
ip link delete switch
ip netns add switch
ip -n switch link add po1 type bond mode 802.3ad miimon 100 lacp_rate fast
for number in 1 2; do
    ip link set port$number netns switch
    ip -n switch link set port$number mtu 9000 master po1
done
ip -n switch link set po1 up
ip -n switch link add link po1 name po1.7 type vlan id 7
ip -n switch address add 10.77.0.1/24 dev po1.7
ip -n switch link set po1.7 up
"""
"""Replace the switch of the guest by one that joins both ports by LACP, with an address in the VLAN 7."""
CONNECT = "import socket; print(socket.socket().connect_ex(('10.77.0.1', 9)))"
REFUSED = "111"
"""The number of the error of a host that answers, and does not listen."""


@pytest.mark.rare
def test_a_bond_speaks_lacp_with_a_switch(bonded: Host) -> None:
    host = bonded
    wanted = configured(
        host,
        {
            "bond0": {"members": ["eth1", "eth2"], "mtu": 9000},
            "bond0.7": {"parent": "bond0", "vlan": 7, "mtu": 8000, "network": "data", "address": "10.77.0.2"},
        },
    )
    silent = host.play("host_network", **wanted)
    assert "no switch answers bond0 by LACP: configure LACP there" in silent.failures[-1]
    host.guest.run("sh", "-c", SWITCH, check=True)
    joined = host.play("host_network", **wanted)
    assert joined.code == 0, joined.failures
    assert joined.changes == []
    group = json.loads(host.guest.run("ip", "-json", "-details", "link", "show", "bond0", check=True).stdout)
    assert group[0]["linkinfo"]["info_data"]["ad_info"]["num_ports"] == 2
    assert host.guest.run("python3", "-c", CONNECT, check=True).stdout.strip() == REFUSED
    host.guest.run("ip", "-n", "switch", "link", "set", "port2", "nomaster", check=True)
    half = host.play("host_network", **wanted)
    assert "the switch has joined 1 of 2 members of bond0 by LACP" in half.failures[-1]
