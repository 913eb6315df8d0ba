"""The output of `ip -json` that muster reads: recorded of a bond with a VLAN, and of the program of this machine.

Tested code: validation/layers/links.py, roles/host_network/filter_plugins/host_network_state.py.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deployment import test_host_network_state as role
from tests.deployment.host_network_filters import filters
from tests.validation.host_doubles import interfaces
from validation.judge.hosts.host_facts import Interface, judge_mtu
from validation.judge.verdict import Verdict
from validation.layers.links import read_networks

RECORDED: Final = Path(__file__).parent / "recorded"
BOND: Final = (RECORDED / "ip-address-bond-6.1.json").read_text()
DETAILS: Final = (RECORDED / "ip-details-bond-6.1.json").read_text()
STORAGE: Final = ["192.168.11.0/24"]
WANTED: Final[dict[str, dict[str, Any]]] = {
    "bond0": {"members": ["eth0", "eth1"], "mtu": 9000},
    "bond0.7": {"parent": "bond0", "vlan": 7, "mtu": 9000, "network": "storage", "address": "192.168.11.21"},
}
NETWORKS: Final = {"storage": {"cidr": "192.168.11.0/24"}}
READ: Final = {"ifname", "mtu", "operstate", "link", "master", "addr_info", "flags", "link_type", "linkinfo"}
"""The keys of an interface that muster reads."""
MAKE: Final = """
link add eth0 type veth peer name port0
link add br0 type bridge
link set eth0 mtu 9000
link set eth0 master br0
link set br0 mtu 9000 up
address add 192.168.11.21/24 dev br0
link add macvlan0 link port0 type macvlan
link set port0 up
"""


def test_the_recorded_bond_is_read() -> None:
    faces = read_networks(BOND)
    assert faces["eth0"] == Interface(9000, [], "UP", "port0", "bond0")
    assert faces["eth1"] == Interface(9000, [], "LOWERLAYERDOWN", "port1", "bond0")
    assert faces["bond0.7"].addresses[0] == "192.168.11.21"
    assert (faces["bond0.7"].base, faces["mv0"].base, faces["eth2"].master) == ("bond0", "eth3", "br0")
    judged = judge_mtu({"n1": faces}, STORAGE, 9000)
    assert (judged.verdict, judged.reason.partition(" ->")[0]) == (Verdict.FAIL, "n1 eth1 is LOWERLAYERDOWN")
    whole = read_networks(BOND.replace("LOWERLAYERDOWN", "UP"))
    assert judge_mtu({"n1": whole}, STORAGE, 9000).verdict == Verdict.PASS


def test_an_interface_of_another_namespace_is_read() -> None:
    faces = read_networks((RECORDED / "ip-address-pod-6.1.json").read_text())
    assert faces["net1"] == Interface(9000, [], "DOWN")


def test_the_role_reads_the_recorded_bond() -> None:
    shown, state = json.loads(DETAILS), f"{DETAILS}\ndefault via 10.9.0.1 dev br0 proto static\n"
    named = filters()
    assert named["unusable_links"](shown, WANTED) == []
    assert named["stale_links"](shown, WANTED) == []
    assert named["link_problems"](state, WANTED, NETWORKS) == []
    assert named["links_without_carrier"](state, WANTED) == ["eth1 has no link"]
    other = DETAILS.replace('"ad_lacp_rate":"fast"', '"ad_lacp_rate":"slow"').replace('"id":7', '"id":8')
    assert named["stale_links"](json.loads(other), WANTED) == ["bond0", "bond0.7"]


@pytest.mark.parametrize("name", ["bond0", "bond0.7", "eth1"])
def test_doubles_have_the_keys_of_the_recorded_output(name: str) -> None:
    real = next(link for link in json.loads(DETAILS) if link["ifname"] == name)
    assert_keys(role.WHOLE[name], real)
    for double in json.loads(interfaces("dgx1-1")):
        assert double.keys() <= real.keys() | {"master", "link"}


def assert_keys(double: dict[str, Any], real: dict[str, Any]) -> None:
    """Assert that each key of the double is one of the real output, with a value of the same type."""
    for key, value in double.items():
        assert isinstance(real[key], type(value)), key
        if isinstance(value, dict):
            assert_keys(value, real[key])
        if isinstance(value, list) and value and isinstance(value[0], dict):
            assert_keys(value[0], real[key][0])


@pytest.fixture
def shown() -> str:
    """The output of `ip` in a network namespace of its own, with a bridge, its port and a macvlan."""
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("a network namespace needs root, iproute2 and unshare")
    lines = " && ".join(f"ip {line}" for line in MAKE.strip().splitlines())
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", f"{lines} && ip -json -details address show"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Unknown device type" in done.stderr or "not supported" in done.stderr:
        pytest.skip(f"the kernel lacks a kind of interface: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_this_machine_prints_the_same_keys(shown: str) -> None:
    recorded = {key for link in json.loads(DETAILS) for key in link}
    assert {key for link in json.loads(shown) for key in link} & READ == recorded & READ
    faces = read_networks(shown)
    assert (faces["eth0"].mtu, faces["eth0"].master, faces["eth0"].base) == (9000, "br0", "port0")
    assert (faces["br0"].mtu, faces["br0"].addresses[:1]) == (9000, ["192.168.11.21"])
    assert faces["macvlan0"].base == "port0"
    kinds = {
        link["ifname"]: link["linkinfo"]["info_kind"] for link in json.loads(shown) if "linkinfo" in link
    }
    assert kinds == {"eth0": "veth", "port0": "veth", "br0": "bridge", "macvlan0": "macvlan"}
