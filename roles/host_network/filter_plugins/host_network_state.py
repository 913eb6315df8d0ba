"""Compares the interfaces of a host, as `ip` and NetworkManager show them, with the site file."""

import configparser
import ipaddress
import json
from typing import Any

Interfaces = dict[str, dict[str, Any]]
Links = list[dict[str, Any]]

CONNECTIONS = "/etc/NetworkManager/system-connections"
HASHED = ("802.3ad", "balance-xor")
"""Modes of a bond that choose the member by a hash of the packet."""

REPLACED = ("method", "address", "addresses", "address1", "gateway", "may-fail", "addr-gen-mode")
"""Settings of a connection that the role's connection replaces, or that say nothing beside these."""


def links_of(shown: Links, names: list[str]) -> dict[str, int]:
    """Return the MTU of each of these interfaces that is in the output of `ip -json address`."""
    return {link["ifname"]: link["mtu"] for link in shown if link.get("ifname") in names}


def unusable(shown: Links, interfaces: Interfaces) -> list[str]:
    """Return a sentence for each interface that the host has in another form than the site file needs."""
    found = []
    for link in shown:
        name, kind = link.get("ifname"), link.get("linkinfo", {}).get("info_kind", "")
        entry = interfaces.get(str(name))
        if entry is None and name not in _members(interfaces):
            continue
        wanted = "bond" if entry and "members" in entry else "vlan" if entry and "parent" in entry else ""
        if link.get("link_type") != "ether":
            found.append(f"{name} is no Ethernet interface ({link.get('link_type')}): leave it out")
        elif wanted and kind != wanted:
            found.append(
                f"{name} is an interface of the host and no {wanted}: give the {wanted} another name"
            )
        elif not wanted and kind in {"bond", "vlan", "bridge"}:
            found.append(f"{name} is a {kind}: describe it with members or a parent, or leave it out")
    return found


def stale(shown: Links, interfaces: Interfaces) -> list[str]:
    """Return the bonds and VLANs with other parameters. No manager changes these while the interface exists."""
    links = {link["ifname"]: link for link in shown if "ifname" in link}
    return [name for name, entry in interfaces.items() if name in links and _differs(links[name], entry)]


def problems_of(text: str, interfaces: Interfaces, networks: dict[str, Any]) -> list[str]:
    """Return a sentence for each interface that is not as the site file says.

    `text` is the output of `ip -json -details address show`, then that of `ip -4 route show default`.
    """
    shown, routes = _read(text)
    links = {link["ifname"]: link for link in shown if "ifname" in link}
    found = []
    for name, entry in interfaces.items():
        if name not in links:
            found.append(f"there is no {name}")
            continue
        for one in (name, *entry.get("members", [])):
            link = links.get(one, {})
            if link.get("mtu", 0) != entry.get("mtu", link.get("mtu", 0)):
                found.append(f"{one} has the MTU {link.get('mtu')}, not {entry['mtu']}")
            if link and "UP" not in link.get("flags", []):
                found.append(f"{one} is down")
        if "members" in entry:
            present = {link["ifname"] for link in links.values() if link.get("master") == name}
            found += [f"{each} is no member of {name}" for each in entry["members"] if each not in present]
            found += [
                f"{each} is a member of {name}" for each in sorted(present.difference(entry["members"]))
            ]
        found += _address_problems(name, links[name], entry, networks)
        found += _route_problems(name, entry, networks, routes)
    return found + [f"{name} has other parameters" for name in stale(shown, interfaces)]


def unlinked(text: str, interfaces: Interfaces) -> list[str]:
    """Return a sentence for each interface or member of a bond without a carrier, such as a port without a cable."""
    dead = [link["ifname"] for link in _read(text)[0] if link.get("operstate") not in {"UP", "UNKNOWN"}]
    return [f"{name} has no link" for name in (*interfaces, *_members(interfaces)) if name in dead]


def unaggregated(text: str, interfaces: Interfaces) -> list[str]:
    """Return a sentence for each bond with LACP whose switch does not answer, or has not accepted each member."""
    found = []
    for link in _read(text)[0]:
        members = interfaces.get(link["ifname"], {}).get("members", [])
        group = link.get("linkinfo", {}).get("info_data", {}).get("ad_info", {})
        if members and set(group.get("partner_mac", "")) <= {"0", ":"} and group:
            found.append(
                f"no switch answers {link['ifname']} by LACP: configure LACP there, or set another mode"
            )
        elif members and group.get("num_ports", len(members)) != len(members):
            ports = f"{group['num_ports']} of {len(members)} members"
            found.append(f"the switch has joined {ports} of {link['ifname']} by LACP: check its port channel")
    return found


def problems_of_connections(present: dict[str, str], interfaces: Interfaces, shown: Links) -> list[str]:
    """Return a sentence for each setting that an interface would lose to muster's connection, which replaces others."""
    new = {
        name
        for name in (*interfaces, *_members(interfaces))
        if f"{CONNECTIONS}/muster-{name}.nmconnection" not in present
    }
    stated = {entry["address"] for entry in interfaces.values() if "address" in entry}
    found = []
    for link in shown:
        name = str(link.get("ifname"))
        has = [each for each in link.get("addr_info", []) if each.get("scope") == "global"]
        lost = [each["local"] for each in has if each["local"] not in stated]
        is_replaced = "address" in interfaces.get(name, {}) and len(has) == 1 and has[0]["family"] == "inet"
        if name in new and lost and not is_replaced:
            found.append(f"{name} would lose {', '.join(lost)}: remove the addresses, or leave out {name}")
    for path, text in present.items():
        if path.endswith(".nmconnection") and not path.startswith(f"{CONNECTIONS}/muster-"):
            found += [f"{path}:{problem}" for problem in _connection_problems(text, new, interfaces)]
    return found


def _connection_problems(text: str, new: set[str], interfaces: Interfaces) -> list[str]:
    parser = configparser.ConfigParser(
        interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#",)
    )
    try:
        parser.read_string(text)
    except configparser.Error:
        return ["1: it is no connection of NetworkManager: correct it"]
    name = parser.get("connection", "interface-name", fallback="")
    found, section = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = (each.strip() for each in line.partition("="))
        section = key.strip("[]") if key.startswith("[") else section
        is_dynamic = (
            key == "method"
            and "address" not in interfaces.get(name, {})
            and value not in {"disabled", "link-local"}
        )
        if (
            name in new
            and section in {"ipv4", "ipv6"}
            and value
            and (key not in REPLACED or (section == "ipv4" and is_dynamic))
        ):
            found.append(f"{number}: {name} would lose `{key}` of {section}: remove it, or leave out {name}")
    return found


def _read(text: str) -> tuple[Links, list[str]]:
    """Return the interfaces and the default routes of an output."""
    links, end = json.JSONDecoder().raw_decode(text)
    return [link for link in links if "ifname" in link], text[end:].strip().splitlines()


def _members(interfaces: Interfaces) -> list[str]:
    return [member for entry in interfaces.values() for member in entry.get("members", [])]


def _differs(link: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Return whether a bond or VLAN has other parameters than the site file gives it."""
    info = link.get("linkinfo", {})
    data = info.get("info_data", {})
    if "parent" in entry:
        wanted = {"id": entry["vlan"], "protocol": "802.1Q"}
        return (
            info.get("info_kind") != "vlan"
            or link.get("link") != entry["parent"]
            or not wanted.items() <= data.items()
        )
    if "members" not in entry:
        return False
    wanted = {"mode": entry.get("mode", "802.3ad"), "miimon": 100}
    wanted |= {"ad_lacp_rate": entry.get("lacp_rate", "fast")} if wanted["mode"] == "802.3ad" else {}
    wanted |= {"xmit_hash_policy": "layer3+4"} if wanted["mode"] in HASHED else {}
    return info.get("info_kind") != "bond" or not wanted.items() <= data.items()


def _address_problems(
    name: str, link: dict[str, Any], entry: dict[str, Any], networks: dict[str, Any]
) -> list[str]:
    if "address" not in entry:
        return []
    prefix = ipaddress.ip_network(networks[entry["network"]]["cidr"]).prefixlen
    wanted = f"{entry['address']}/{prefix}"
    has = [each for each in link.get("addr_info", []) if each.get("family") == "inet"]
    texts = [f"{each['local']}/{each['prefixlen']}" for each in has]
    # A /32 can be the address of a service that moves between hosts, as of keepalived or kube-vip.
    old = [text for text in texts if text != wanted and not text.endswith("/32")]
    missing = [] if wanted in texts else [f"{name} lacks {wanted} (link {link.get('operstate', 'unknown')})"]
    return missing + [f"{name} still has {text}" for text in old]


def _route_problems(
    name: str, entry: dict[str, Any], networks: dict[str, Any], routes: list[str]
) -> list[str]:
    gateway = networks[entry["network"]].get("gateway") if "address" in entry else None
    first = f"{routes[0]} " if routes else ""
    if not gateway or first.startswith(f"default via {gateway} dev {name} "):
        return []
    return [f"the default route is `{first.strip() or 'missing'}`, not via {gateway} dev {name}"]


class FilterModule:
    """The filters for the state of a host."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "link_mtus": links_of,
            "unusable_links": unusable,
            "stale_links": stale,
            "link_problems": problems_of,
            "links_without_carrier": unlinked,
            "links_without_lacp": unaggregated,
            "connection_problems": problems_of_connections,
        }
