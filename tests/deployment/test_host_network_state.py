"""The role host_network compares the interfaces of a host with the site file, by the output of `ip` of iproute2 6.1."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.deployment.host_network_filters import filters

FILTERS = filters()
CONNECTIONS = "/etc/NetworkManager/system-connections"
NETWORKS = {"storage": {"cidr": "192.168.11.0/24"}, "office": {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}}
WANTED: dict[str, dict[str, Any]] = {
    "bond0": {"members": ["eth1", "eth2"], "mtu": 9000},
    "bond0.7": {"parent": "bond0", "vlan": 7, "mtu": 8000, "network": "storage", "address": "192.168.11.31"},
    "eth0": {"network": "office", "address": "10.9.0.31"},
}
ROUTE = "default via 10.9.0.1 dev eth0 proto static"
LACP = {"mode": "802.3ad", "miimon": 100, "xmit_hash_policy": "layer3+4", "ad_lacp_rate": "fast"}


def link(name: str, mtu: int = 1500, *addresses: str, **more: Any) -> dict[str, Any]:
    """Return an interface as `ip -json -details address show` has it."""
    parts = [each.partition("/") for each in addresses]
    return {
        "ifname": name,
        "mtu": mtu,
        "flags": ["BROADCAST", "UP", "LOWER_UP"],
        "operstate": "UP",
        "link_type": "ether",
        "addr_info": [
            {
                "family": "inet6" if ":" in local else "inet",
                "local": local,
                "prefixlen": int(prefix),
                "scope": "global",
            }
            for local, _, prefix in parts
        ],
    } | more


def bond(**changes: Any) -> dict[str, Any]:
    return {"linkinfo": {"info_kind": "bond", "info_data": LACP | changes}}


def vlan(parent: str = "bond0", **changes: Any) -> dict[str, Any]:
    data = {"protocol": "802.1Q", "id": 7} | changes
    return {"link": parent, "linkinfo": {"info_kind": "vlan", "info_data": data}}


WHOLE = {
    "eth0": link("eth0", 1500, "10.9.0.31/24", "fd00::31/64"),
    "eth1": link("eth1", 9000, master="bond0"),
    "eth2": link("eth2", 9000, master="bond0"),
    "eth3": link("eth3"),
    "bond0": link("bond0", 9000, **bond()),
    "bond0.7": link("bond0.7", 8000, "192.168.11.31/24", **vlan()),
}


def state(changes: Mapping[str, dict[str, Any] | None] = MappingProxyType({}), routes: str = ROUTE) -> str:
    """Return the state of a whole host with these interfaces changed."""
    links = [each for each in (WHOLE | dict(changes)).values() if each is not None]
    return f"{json.dumps(links)}\n{routes}\n"


STALE = {
    "another mode": {"bond0": link("bond0", 9000, **bond(mode="balance-xor"))},
    "another rate of LACP": {"bond0": link("bond0", 9000, **bond(ad_lacp_rate="slow"))},
    "another hash": {"bond0": link("bond0", 9000, **bond(xmit_hash_policy="layer2"))},
    "no monitor": {"bond0": link("bond0", 9000, **bond(miimon=0))},
    "a port in place of the bond": {"bond0": link("bond0", 9000)},
    "another id": {"bond0.7": link("bond0.7", 8000, "192.168.11.31/24", **vlan(id=8))},
    "another parent": {"bond0.7": link("bond0.7", 8000, "192.168.11.31/24", **vlan("eth3"))},
    "another protocol": {"bond0.7": link("bond0.7", 8000, "192.168.11.31/24", **vlan(protocol="802.1ad"))},
    "a port in place of the VLAN": {"bond0.7": link("bond0.7", 8000, "192.168.11.31/24")},
}


@pytest.mark.parametrize("name", STALE)
def test_other_parameters_are_named_and_the_interface_is_made_again(name: str) -> None:
    (changed,) = STALE[name]
    text = state(STALE[name])
    assert FILTERS["link_problems"](text, WANTED, NETWORKS) == [f"{changed} has other parameters"]
    assert FILTERS["stale_links"](json.loads(text.splitlines()[0]), WANTED) == [changed]


WRONG = {
    "there is no bond0.7": state({"bond0.7": None}),
    "eth2 is no member of bond0": state({"eth2": link("eth2", 9000)}),
    "eth3 is a member of bond0": state({"eth3": link("eth3", 9000, master="bond0")}),
    "bond0.7 has the MTU 1500, not 8000": state({"bond0.7": WHOLE["bond0.7"] | {"mtu": 1500}}),
    "eth2 has the MTU 1500, not 9000": state({"eth2": WHOLE["eth2"] | {"mtu": 1500}}),
    "eth2 is down": state({"eth2": WHOLE["eth2"] | {"flags": ["BROADCAST"], "operstate": "DOWN"}}),
    "bond0 is down": state({"bond0": WHOLE["bond0"] | {"flags": ["BROADCAST"]}}),
    "bond0.7 lacks 192.168.11.31/24 (link UP)": state({"bond0.7": link("bond0.7", 8000, **vlan())}),
    "eth0 still has 10.1.0.2/16": state({"eth0": link("eth0", 1500, "10.9.0.31/24", "10.1.0.2/16")}),
    "the default route is `missing`, not via 10.9.0.1 dev eth0": state(routes=""),
    "the default route is `default via 10.9.0.1 dev eth01`, not via 10.9.0.1 dev eth0": state(
        routes=f"default via 10.9.0.1 dev eth01\n{ROUTE}"
    ),
}


@pytest.mark.parametrize("says", WRONG)
def test_an_interface_that_is_not_as_the_site_says_is_named(says: str) -> None:
    assert FILTERS["link_problems"](WRONG[says], WANTED, NETWORKS) == [says]


def test_a_host_that_is_as_the_site_says_passes() -> None:
    shared = link("eth0", 1500, "10.9.0.31/24", "10.9.0.100/32")  # the address of a service, by keepalived
    for text in (
        state(),
        state(routes=f"{ROUTE}\ndefault via 10.1.0.1 dev eth3 metric 100"),
        state({"eth0": shared}),
    ):
        assert FILTERS["link_problems"](text, WANTED, NETWORKS) == []
        assert FILTERS["links_without_carrier"](text, WANTED) == []
    assert FILTERS["link_problems"]("[{}]\n", {}, NETWORKS) == []
    other = {"bond0": WANTED["bond0"] | {"mode": "active-backup"}}
    backup = bond(mode="active-backup", ad_lacp_rate="slow", xmit_hash_policy="layer2")
    assert FILTERS["link_problems"](state({"bond0": link("bond0", 9000, **backup)}), other, NETWORKS) == []


@pytest.mark.parametrize("operstate", ["DOWN", "LOWERLAYERDOWN", "DORMANT"])
def test_an_interface_or_a_member_without_a_link_is_named(operstate: str) -> None:
    for name in ("eth2", "bond0", "bond0.7"):
        dead = state({name: WHOLE[name] | {"operstate": operstate}})
        assert FILTERS["links_without_carrier"](dead, WANTED) == [f"{name} has no link"]
    unused = state({"eth3": WHOLE["eth3"] | {"operstate": operstate}})
    assert FILTERS["links_without_carrier"](unused, WANTED) == []


def joined(ports: int, partner: str = "9c:b8:b4:00:00:01") -> str:
    """Return the output of a host whose switch has joined some members of bond0."""
    group = {"aggregator": 1, "num_ports": ports, "actor_key": 9, "partner_key": 9, "partner_mac": partner}
    return state({"bond0": link("bond0", 9000, **bond(ad_info=group))})


def test_a_bond_that_its_switch_has_not_joined_is_named() -> None:
    found = FILTERS["links_without_lacp"]
    assert found(joined(2), WANTED) == found(state(), WANTED) == []
    assert found(joined(1), {}) == [], "a bond of others"
    (half,) = found(joined(1), WANTED)
    assert half.startswith("the switch has joined 1 of 2 members of bond0 by LACP")
    (silent,) = found(joined(1, "00:00:00:00:00:00"), WANTED)
    assert silent.startswith("no switch answers bond0 by LACP")


UNUSABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ib0 is no Ethernet interface (infiniband): leave it out": (
        {"ib0": {"mtu": 4092}},
        link("ib0", link_type="infiniband"),
    ),
    "ib1 is no Ethernet interface (infiniband): leave it out": (
        {"bond0": {"members": ["ib1"]}},
        link("ib1", link_type="infiniband"),
    ),
    "eth5 is an interface of the host and no vlan: give the vlan another name": (
        {"eth5": {"parent": "eth1", "vlan": 5}},
        link("eth5"),
    ),
    "eth5 is an interface of the host and no bond: give the bond another name": (
        {"eth5": {"members": ["eth1"]}},
        link("eth5", linkinfo={"info_kind": "bridge"}),
    ),
    "bond7 is a bond: describe it with members or a parent, or leave it out": (
        {"bond7": {"mtu": 9000}},
        link("bond7", **bond()),
    ),
}


@pytest.mark.parametrize("says", UNUSABLE)
def test_an_interface_of_another_form_is_refused(says: str) -> None:
    interfaces, found = UNUSABLE[says]
    assert FILTERS["unusable_links"]([{}, found], interfaces) == [says]
    assert FILTERS["unusable_links"](list(WHOLE.values()), WANTED) == []
    assert FILTERS["unusable_links"]([found], {"eth9": {"mtu": 9000}}) == []


OFFICE = """\
[connection]
id=Wired 1
interface-name=eth0

[ipv4]
method=manual
address1=10.9.0.2/24
gateway=10.9.0.1

[ipv6]
addr-gen-mode=default
method=auto
"""
LOST: dict[str, tuple[str, dict[str, Any], str]] = {
    "dns": (OFFICE.replace("gateway=", "dns=1.1.1.1;\ngateway="), WANTED, "8: eth0 would lose `dns` of ipv4"),
    "a route": (OFFICE.replace("method=auto", "route1=::/0"), WANTED, "12: eth0 would lose `route1` of ipv6"),
    "DHCP": (
        OFFICE.replace("manual", "auto"),
        {"eth0": {"mtu": 9000}},
        "6: eth0 would lose `method` of ipv4",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_connection_with_settings_that_would_be_lost_is_refused(name: str) -> None:
    text, interfaces, says = LOST[name]
    path = f"{CONNECTIONS}/office.nmconnection"
    problems = FILTERS["connection_problems"]
    assert [each[: len(path) + len(says) + 1] for each in problems({path: text}, interfaces, [])] == [
        f"{path}:{says}"
    ]
    assert problems({path: text, f"{CONNECTIONS}/muster-eth0.nmconnection": "x"}, interfaces, []) == []
    assert problems({path: text}, {"eth1": {"mtu": 9000}}, []) == []
    assert problems({path: OFFICE}, WANTED, []) == []
    assert problems({path: "dns"}, WANTED, []) == [
        f"{path}:1: it is no connection of NetworkManager: correct it"
    ]


def test_an_address_that_the_connection_of_muster_does_not_have_is_refused() -> None:
    problems = FILTERS["connection_problems"]
    old, new = link("eth0", 1500, "10.1.0.2/24"), link("eth0", 1500, "10.9.0.31/24")
    assert problems({}, WANTED, [old]) == []
    assert problems({}, WANTED, [new, link("eth3", 1500, "10.2.0.2/24")]) == []
    assert problems({}, {"eth0": {"mtu": 9000}}, [old]) == [
        "eth0 would lose 10.1.0.2: remove the addresses, or leave out eth0"
    ]
    assert "would lose fd00::31" in problems({}, WANTED, [WHOLE["eth0"]])[0]
    assert "would lose 10.1.0.2" in problems({}, {"bond0": {"members": ["eth0"]}}, [old])[0]
    mine = {f"{CONNECTIONS}/muster-eth0.nmconnection": "x"}
    assert problems(mine, {"eth0": {"mtu": 9000}}, [old]) == []


def test_the_interfaces_that_the_host_must_have_are_those_that_the_role_does_not_make() -> None:
    assert FILTERS["physical_links"](WANTED) == ["eth0", "eth1", "eth2"]
    shown = [{}, link("eth1", 9000), link("eth3")]
    assert FILTERS["link_mtus"](shown, ["eth1", "eth9"]) == {"eth1": 9000}
