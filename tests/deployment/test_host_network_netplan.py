"""The files of netplan of others: the role host_network changes nothing but what it replaces, or refuses the file.

The answers of netplan that the cases rest on are those of netplan.io 1.1 of Ubuntu 24.04.
"""

from typing import Any

import pytest
import yaml

from tests.deployment.host_network_filters import filters

FILTERS = filters()
OURS = "/etc/netplan/90-muster.yaml"
FILE = "/etc/netplan/50-cloud-init.yaml"
NETWORKS = {"storage": {"cidr": "10.0.0.0/24"}, "office": {"cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}}
MAC = "52:54:00:00:00:01"
SHOWN = [
    {"ifname": "eth1", "address": MAC},
    {"ifname": "eth2", "address": MAC, "permaddr": "52:54:00:00:00:02"},
]
STORAGE = {"eth1": {"network": "storage", "address": "10.0.0.9", "mtu": 9000}}
OFFICE = {"eth1": {"network": "office", "address": "10.9.0.9"}}
PLAIN = {"eth1": {"mtu": 9000}}
BOND = {"bond0": {"members": ["eth1", "eth2"], "network": "office", "address": "10.9.0.9"}}
VLAN = {"bond0": {"members": ["eth1", "eth2"]}, "bond0.7": {"parent": "bond0", "vlan": 7}}


def ours(interfaces: dict[str, Any]) -> Any:
    return FILTERS["netplan_interfaces"](interfaces, NETWORKS)


def rewritten(text: str, interfaces: dict[str, Any], path: str = FILE) -> str:
    """Return the file beside these interfaces, which the role must accept."""
    assert FILTERS["netplan_problems"]({path: text}, ours(interfaces), SHOWN) == []
    return str(FILTERS["netplan_rewritten"]({path: text}, ours(interfaces), {}, SHOWN)[path])


def entry(text: str) -> str:
    """Return a file with eth0, and with these settings of eth1."""
    return f"""\
# This file is generated from information provided by the datasource.
network:
  version: 2
  ethernets:
    eth0: # the office
      dhcp4: yes
      macaddress: 52:54:00:12:34:56
      match: {{macaddress: 52:54:00:00:00:00}}
      routes:
      - to: 10.3.0.0/16
        via: 10.9.0.1
        table: 0100
    eth1: {text}
    eth3:
      dhcp4: true # later
"""


CHANGED: dict[str, tuple[dict[str, Any], str, str]] = {
    "DHCP": (STORAGE, "{dhcp4: true, dhcp6: true, optional: true}", "{dhcp6: true, optional: true}"),
    "DHCP of a renamed port": (
        STORAGE,
        f"{{dhcp4: on, match: {{macaddress: '{MAC}'}}, set-name: eth1}}",
        f"{{match: {{macaddress: '{MAC}'}}, set-name: eth1}}",
    ),
    "another MTU": (
        PLAIN,
        "{dhcp4: true, mtu: 1400, nameservers: {addresses: [1.1.1.1]}}",
        "{dhcp4: true, nameservers: {addresses: [1.1.1.1]}}",
    ),
    "the same MTU": (PLAIN, "{mtu: 9000, addresses: [10.0.0.2/24]}", "{mtu: 9000, addresses: [10.0.0.2/24]}"),
    "its address": (STORAGE, "{addresses: [10.0.0.9/24]}", "{addresses: [10.0.0.9/24]}"),
    "another address": (
        STORAGE,
        '{addresses: [10.0.0.2/24, "fd00::1/64"], nameservers: {addresses: [1.1.1.1]}}',
        '{addresses: ["fd00::1/64"], nameservers: {addresses: [1.1.1.1]}}',
    ),
    "a route that stays": (
        STORAGE,
        "{addresses: [10.0.0.2/24], routes: [{to: 10.2.0.0/16, via: 10.0.0.1}]}",
        "{routes: [{to: 10.2.0.0/16, via: 10.0.0.1}]}",
    ),
    "another gateway": (
        OFFICE,
        "{addresses: [10.9.0.2/24], routes: [{to: default, via: 10.9.0.3}, {to: 10.2.0.0/16, via: 10.9.0.4}]}",
        "{routes: [{to: 10.2.0.0/16, via: 10.9.0.4}]}",
    ),
    "the same gateway": (
        OFFICE,
        "{routes: [{to: default, via: 10.9.0.1, metric: 5}]}",
        "{routes: [{to: default, via: 10.9.0.1, metric: 5}]}",
    ),
    "an old gateway": (
        OFFICE,
        "{gateway4: 10.9.0.1, macaddress: 52:54:00:12:34:56}",
        "{macaddress: '52:54:00:12:34:56'}",
    ),
    "an address that moves to the bond": (
        BOND,
        "{addresses: [10.9.0.9/24], gateway4: 10.9.0.1, dhcp6: true, wakeonlan: true}",
        "{wakeonlan: true}",
    ),
    "everything": (STORAGE, "{dhcp4: true}", "{}"),
    "a block": (
        STORAGE,
        "\n      dhcp4: true\n      optional: true # slow\n      addresses:\n      - 10.0.0.2/24",
        "{optional: true}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_a_file_of_others_loses_the_replaced_settings_alone(name: str) -> None:
    interfaces, before, after = CHANGED[name]
    assert rewritten(entry(before), interfaces) == entry(after)
    assert rewritten(entry(after), interfaces) == entry(after)


def test_a_file_without_the_interfaces_is_not_changed() -> None:
    for text in (
        entry("{dhcp4: true}"),
        "",
        "# nothing\n",
        "{}\n",
        "network: {version: 2, renderer: networkd}\n",
    ):
        assert rewritten(text, {"eth7": {"mtu": 9000}}) == text


def test_a_bond_of_others_keeps_the_settings_that_the_role_does_not_have() -> None:
    text = (
        "network: {bonds: {bond0: {interfaces: [eth1, eth5], nameservers: {addresses: [1.1.1.1]}, "
        "parameters: {mode: active-backup, min-links: 1}}}}\n"
    )
    assert rewritten(text, VLAN) == (
        "network: {bonds: {bond0: {nameservers: {addresses: [1.1.1.1]}, parameters: {min-links: 1}}}}\n"
    )


REFUSED: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "no YAML": (PLAIN, "network: [\n", 2, "it is no YAML"),
    "a list": (PLAIN, "- network\n", 1, "keys with values are missing"),
    "a text": (PLAIN, "network: 2020-01-01\n", 1, "keys with values are missing"),
    "two documents": (PLAIN, "network: {version: 2}\n---\nnetwork: {version: 2}\n", 2, "it is no YAML"),
    "an entry without settings": (PLAIN, "network:\n  ethernets:\n    eth5:\n", 3, "keys with values are missing"),
    "another key": (PLAIN, "networks: {version: 2}\n", 1, "netplan has no key `networks`"),
    "a key twice": (PLAIN, entry("{mtu: 1400, mtu: 1300}"), 13, "`mtu` occurs twice"),
    "an alias": (
        PLAIN,
        "network:\n  ethernets:\n    eth1: &a {mtu: 1400}\n    eth2: *a\n",
        3,
        "muster cannot rewrite a file with YAML aliases",
    ),
    "no address": (STORAGE, entry("{addresses: [here]}"), 13, "`here` is no address"),
    "several addresses": (STORAGE, entry("{addresses: [10.0.0.2/24, 10.0.0.3/24]}"), 13, "eth1 would lose an address"),
    "a second address": (STORAGE, entry("{addresses: [10.0.0.9/24, 10.0.0.3/24]}"), 13, "eth1 would lose an address"),
    "an address with options": (STORAGE, entry("{addresses: [10.0.0.2/24: {label: x}]}"), 13, "or its options"),
    "a route elsewhere": (
        STORAGE,
        entry("{addresses: [10.1.0.2/24], routes: [{to: 10.2.0.0/16, via: 10.1.0.1}]}"),
        13,
        "eth1 in 10.0.0.0/24 does not reach 10.1.0.1: remove the route",
    ),
    "a gateway elsewhere": (STORAGE, entry("{gateway4: 10.1.0.1}"), 13, "does not reach 10.1.0.1"),
    "a default route with options": (
        OFFICE,
        entry("{routes: [{to: default, via: 10.9.0.3, metric: 5}]}"),
        13,
        "the default route of eth1 would lose `metric`",
    ),
    "an address of a member": (BOND, entry("{addresses: [10.0.0.2/24]}"), 13, "`addresses` has no effect on eth1"),
    "a name server of a member": (BOND, entry("{nameservers: {}}"), 13, "`nameservers` has no effect on eth1"),
    "another name by its address": (
        PLAIN,
        f"network:\n  ethernets:\n    id0:\n      match: {{macaddress: '{MAC}'}}\n      set-name: eth1\n",
        4,
        "`id0` is also for eth1: name the entry eth1, or exclude eth1 in `match`",
    ),
    "a pattern": (PLAIN, "network: {ethernets: {all: {match: {name: 'eth*'}}}}\n", 1, "`all` is also for eth1"),
    "another pattern": (PLAIN, "network: {ethernets: {all: {match: {name: '!eth0'}}}}\n", 1, "`all` is also for"),
    "a driver": (PLAIN, "network: {ethernets: {all: {match: {driver: mlx5_core}}}}\n", 1, "`all` is also for eth1"),
    "a new name": (PLAIN, entry("{set-name: eth8}"), 13, "`eth1` can be another interface than eth1"),
    "its name for others": (PLAIN, entry("{match: {name: 'en*'}}"), 13, "`eth1` can be another interface"),
    "its name for another address": (PLAIN, entry("{match: {macaddress: '52:54:00:00:00:07'}}"), 13, "`eth1` can be"),
    "another kind": (VLAN, "network: {bridges: {bond0: {}}}\n", 1, "bond0 is in `bridges`, and in `bonds` by the site"),
    "a member of another bond": (
        VLAN,
        "network: {bonds: {bond7: {interfaces: [eth5, eth1]}}}\n",
        1,
        "eth1 is a port of bond7, but not by the site file",
    ),
    "a VLAN over a member": (VLAN, "network: {vlans: {v: {id: 7, link: eth1}}}\n", 1, "v is over eth1, a member"),
    "the VLAN under another name": (
        VLAN,
        "network: {vlans: {v: {id: 7, link: bond0}}}\n",
        1,
        "v is the VLAN 7 over bond0, as bond0.7 of the site file",
    ),
    "the VLAN with another id": (
        VLAN,
        "network: {vlans: {bond0.7: {id: 8, link: bond0}}}\n",
        1,
        "`id` of bond0.7 is 7 in the site file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_the_role_must_not_change_is_refused_with_line_and_fix(name: str) -> None:
    interfaces, text, line, says = REFUSED[name]
    found = FILTERS["netplan_problems"]({FILE: text, OURS: "{"}, ours(interfaces), SHOWN)
    assert len(found) == 1
    assert found[0].startswith(f"{FILE}:{line}: "), found
    assert says in found[0]


ACCEPTED = {
    "another address": f"network: {{ethernets: {{id0: {{match: {{macaddress: '{MAC[:-1]}7'}}, set-name: lan0}}}}}}\n",
    "another pattern": "network: {ethernets: {all: {match: {name: 'en*'}, dhcp4: true}}}\n",
    "its own address": f"network: {{ethernets: {{eth1: {{match: {{macaddress: '{MAC}'}}}}}}}}\n",
    "its permanent address": "network: {ethernets: {eth2: {match: {macaddress: '52:54:00:00:00:02'}}}}\n",
    "another bond": "network: {bonds: {bond7: {interfaces: [eth5]}}}\n",
    "a bridge over the bond": "network: {bridges: {br0: {interfaces: [bond0], dhcp4: true}}}\n",
    "another VLAN": "network: {vlans: {v: {id: 8, link: bond0, addresses: [10.0.0.2/24]}}}\n",
    "the same VLAN": "network: {vlans: {bond0.7: {id: 7, link: bond0, addresses: [10.0.0.2/24]}}}\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_entry_for_another_interface_is_not_changed(name: str) -> None:
    assert rewritten(ACCEPTED[name], VLAN) == ACCEPTED[name]


def test_a_file_that_netplan_does_not_read_is_not_looked_at() -> None:
    text = entry("{dhcp4: true}")
    present = {"/lib/netplan/50-cloud-init.yaml": "[", FILE: text, "/etc/systemd/system/x.yaml": "["}
    assert FILTERS["netplan_problems"](present, ours(STORAGE), SHOWN) == []
    assert set(FILTERS["netplan_rewritten"](present, ours(STORAGE), {}, SHOWN)) == {FILE}


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/run/netplan/50-cloud-init.yaml", "copy it to /etc/netplan"),
        ("/run/netplan/90-muster.yaml", "it has the name of the file of muster: remove it"),
    ],
)
def test_a_file_outside_of_etc_is_not_changed(path: str, says: str) -> None:
    found = FILTERS["netplan_problems"]({FILE: "{}", path: entry("{dhcp4: true}")}, ours(STORAGE), SHOWN)
    assert found == [f"{path}:1: {found[0].partition(':1: ')[2]}"]
    assert says in found[0]
    assert FILTERS["netplan_problems"]({path: entry("{optional: true}")}, ours({"eth7": {}}), SHOWN)[1:] == []


def test_settings_come_back_when_an_interface_leaves_the_site_and_at_the_end() -> None:
    text = entry("{dhcp4: true, optional: true}")
    recorded = FILTERS["recorded_files"]({FILE: text, OURS: "x"}, {FILE: text})
    assert recorded == {FILE: text, OURS: "x"}
    mine = yaml.safe_dump({"network": {"version": 2, **ours(STORAGE)}})
    present = {FILE: rewritten(text, STORAGE), OURS: mine}
    assert FILTERS["owned_links"](present, FILTERS["netplan_own"](present)) == ["eth1"]
    assert FILTERS["netplan_rewritten"](present, ours({"eth7": {}}), recorded, SHOWN) == {FILE: text}
    assert FILTERS["netplan_rewritten"](present, ours(STORAGE), recorded, SHOWN) == {FILE: present[FILE]}

    moved = entry("{addresses: [10.0.0.2/24], optional: true}")
    present_now = {FILE: rewritten(moved, STORAGE), OURS: mine}
    member = FILTERS["netplan_rewritten"](present_now, ours(BOND), {FILE: moved}, SHOWN)
    assert member == {FILE: entry("{optional: true}")}

    before = FILTERS["files_before"]
    originals = FILTERS["netplan_originals"]
    assert before({FILE: text}, present, originals(present, {FILE: text})) == {FILE: text, OURS: ""}
    edited = present | {FILE: entry("{optional: false}")}
    assert before({FILE: text}, edited, originals(edited, {FILE: text})) == {FILE: edited[FILE], OURS: ""}


def test_the_change_and_its_way_back_have_the_differing_files_alone() -> None:
    present = {FILE: "a", OURS: "b"}
    changed = FILTERS["differing_files"]({FILE: "a", OURS: "c", "/new": "d"}, present)
    assert changed == {OURS: "c", "/new": "d"}
    assert FILTERS["former_files"](changed, present) == {OURS: "b", "/new": ""}
