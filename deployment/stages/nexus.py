"""The stage nexus: the configuration of the switches."""

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from deployment.site import Finding, Place, Site
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.secrets import secret

ROCE: Final = {
    "cos": 3, "dscp": 26, "bandwidth_percent": 60, "ecn_minimum_kbytes": 150, "ecn_maximum_kbytes": 3000,
}  # fmt: skip
"""Settings of RoCE if the site file has none of its own."""

_PORT: Final = re.compile(r"Ethernet1/([1-9]|[12][0-9]|3[0-4]|([1-9]|[12][0-9]|3[0-2])/[1-4])")
"""A port of the Nexus 3232C: 32 of QSFP28, each whole or split in four, and two of SFP+."""
_DEFAULT_VLAN: Final = 1
_RESERVED_VLANS: Final = range(3968, 4095)

_QUEUES: Final = {8: "8q", 4: ""}
"""The name of the system classes, by the number of queues of a switch."""


class Nexus(StageDefinition):
    """The stage that renders a configuration file for each switch. It sends them to the switches only with
    `nexus_push`.
    """

    name: ClassVar[str] = "nexus"
    needs: ClassVar[tuple[str, ...]] = ("network", "switches")

    def problems(self, site: Site) -> Iterator[Finding]:
        yield from _of_links(site)
        network = site.get("network", default={})
        size, through = network.get("mtu", 0), self.value(site, "nexus_mtu")
        if network.get("switches") and size > through:
            yield Finding(
                ("network", "mtu"),
                f"packets of {size} bytes do not go through switches of {through}: lower network.mtu",
            )
        for name, host in site.hosts.items():
            for interface, entry in host.get("interfaces", {}).items():
                if network.get("switches") and entry.get("mtu", 0) > through:
                    yield Finding(
                        ("hosts", name, "interfaces", interface, "mtu"),
                        f"{interface} of {name}: packets of {entry['mtu']} bytes do not go through switches of "
                        f"{through}: lower its mtu",
                    )
        roce = ROCE | network.get("roce", {})
        if roce["ecn_minimum_kbytes"] > roce["ecn_maximum_kbytes"]:
            yield Finding(
                ("network", "roce"),
                f"network.roce: ECN begins at {roce['ecn_minimum_kbytes']} kbytes and ends at "
                f"{roce['ecn_maximum_kbytes']}: the first is the smaller one",
            )
        numbers = [vlan["id"] for vlan in network.get("vlans", [])]
        for index, number in enumerate(numbers):
            if number in numbers[:index]:
                yield Finding(("network", "vlans", index), f"VLAN {number} is there twice: leave one out")
            if number == _DEFAULT_VLAN:
                yield Finding(
                    ("network", "vlans", index),
                    "VLAN 1 is the default VLAN of the switches: remove it, or renumber",
                )

    def notes(self, site: Site) -> Iterator[str]:
        vlans = site.get("network", "vlans", default=[])
        yield from site.lines(
            Finding(
                ("network", "vlans", index),
                f"VLAN {vlan['id']} is in the range that NX-OS reserves unless `system vlan reserve` moves it: take "
                f"one below {_RESERVED_VLANS.start}",
            )
            for index, vlan in enumerate(vlans)
            if vlan["id"] in _RESERVED_VLANS
        )
        yield from site.lines(_of_interfaces(site, {vlan["id"] for vlan in vlans}))

    def variables(self, site: Site) -> Variables:
        network = site.get("network", default={})
        roce = network.get("roce")
        return {
            "nexus_switches": [
                {"name": name, "address": switch["address"], "links": switch.get("links", [])}
                for name, switch in network.get("switches", {}).items()
            ],
            "nexus_vlans": network.get("vlans"),
            "nexus_vpc": network.get("vpc"),
            "nexus_mtu": network.get("switch_mtu"),
            "nexus_roce": None if roce is None else ROCE | roce,
            "nexus_queues": _QUEUES[network["queues"]] if "queues" in network else None,
        }

    def sentence(self, site: Site) -> str:
        vlans = ", ".join(str(vlan["id"]) for vlan in self.value(site, "nexus_vlans")) or "none"
        roce = ", RoCE without loss" if self.value(site, "nexus_roce") else ""
        pushed = self.value(site, "nexus_push")
        sent = "show the differences and send the configuration" if pushed else "nothing is sent to a switch"
        names = ", ".join(switch["name"] for switch in self.value(site, "nexus_switches"))
        return (
            f"render the configuration of {names} (VLANs {vlans}, MTU {self.value(site, 'nexus_mtu')}{roce}) beside "
            f"the journal; {sent}"
        )


def switch_variables(site: Site, name: str) -> Variables:
    """Return the variables by which Ansible reaches a switch to push its configuration."""
    switch = site.get("network", "switches")[name]
    values = {
        "ansible_connection": "ansible.netcommon.network_cli",
        "ansible_network_os": "cisco.nxos.nxos",
        "ansible_host": switch["address"],
        "ansible_user": switch.get("user", "admin"),
        "ansible_password": secret(switch.get("password")),
        "ansible_become": False,
    }
    return {key: value for key, value in values.items() if value is not None}


def _of_links(site: Site) -> Iterator[Finding]:
    """Yield ports used twice, channels on one switch only, and VLANs that are not declared."""
    network = site.get("network", default={})
    switches: dict[str, Any] = network.get("switches", {})
    vpc = network.get("vpc")
    known = {vlan["id"] for vlan in network.get("vlans", [])}
    channels = {
        name: {link["channel"] for link in switch.get("links", []) if "channel" in link}
        for name, switch in switches.items()
    }
    if vpc and len(switches) != 2:
        yield Finding(
            ("network", "vpc"), f"a vPC domain has two switches, network.switches has {len(switches)}"
        )
    for name, switch in switches.items():
        used = dict.fromkeys(vpc["ports"], "the peer link") if vpc else {}
        for index, link in enumerate(switch.get("links", [])):
            place: Place = ("network", "switches", name, "links", index)
            for port in link["ports"]:
                if not _PORT.fullmatch(port):
                    yield Finding(
                        place,
                        f"{name} has no {port}: Nexus 3232C has Ethernet1/1 to Ethernet1/34: correct it",
                    )
                if port in used:
                    yield Finding(place, f"{port} of {name} leads to {used[port]} and to {link['to']}")
                used[port] = link["to"]
            for vlan in sorted(set(link["vlans"]) - known):
                yield Finding(place, f"VLAN {vlan} is not in network.vlans")
            if "channel" in link and not vpc:
                yield Finding(place, f"channel {link['channel']} uses two switches: network.vpc is missing")
            elif "channel" in link and any(link["channel"] not in numbers for numbers in channels.values()):
                yield Finding(
                    place, f"channel {link['channel']} is on {name} alone: give the other switch its half"
                )


def _of_interfaces(site: Site, known: set[int]) -> Iterator[Finding]:
    """Yield VLANs and lossless interfaces of hosts that the switches of the site file do not carry."""
    for host, entry in site.hosts.items():
        for name, interface in entry.get("interfaces", {}).items():
            place: Place = ("hosts", host, "interfaces", name)
            if interface.get("vlan", next(iter(known), None)) not in known and known:
                yield Finding(
                    place,
                    f"{name} of {host} is in VLAN {interface['vlan']}, which network.vlans does not have: add it",
                )
            if interface.get("roce") and site.get("network", "roce") is None:
                yield Finding(
                    place,
                    f"RoCE on {name} of {host} is lossless, and the switches drop its packets: add network.roce",
                )


STAGE: Final = Nexus()
