"""Removes from the netplan files of others the settings that the role replaces, and names those that it cannot keep.

A file keeps all other settings, in their form. `_edited` says which entries it writes again, in one line.
"""

import fnmatch
import ipaddress
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import yaml

Files = dict[str, str]
Network = dict[str, dict[str, dict[str, Any]]]
"""Interfaces as netplan describes them: by kind, then by name."""
Pairs = list[tuple[yaml.ScalarNode, yaml.Node]]

OURS = "/etc/netplan/90-muster.yaml"
FOLDERS = ("/lib/netplan", "/etc/netplan", "/run/netplan")
"""The folders of netplan. A file replaces a file of the same name in the folders before."""

ROUTED = ("addresses", "gateway4", "gateway6", "nameservers", "routes", "routing-policy")
"""Settings that have no effect on a member of a bond."""

PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")
"""Values that need no quotes in any parser of YAML. An older libyaml refuses `{mac: 52:54:00:12:34:56}`."""


class Unclear(Exception):
    """An entry that the role does not understand or must not change, with its line and the fix."""

    def __init__(self, node: yaml.Node | None, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = node.start_mark.line + 1 if node else line


def problems_of(present: Files, ours: Network, shown: list[dict[str, Any]]) -> list[str]:
    """Return a sentence with file, line and fix for each file of others that the role cannot keep beside its own."""
    found = []
    for path, text in others(present).items():
        try:
            _refuse_file(path, text, ours, shown)
        except Unclear as problem:
            found.append(f"{path}:{problem.line}: {problem}")
    return found


def others(present: Files) -> Files:
    """Return the files of others that netplan reads, in its order."""
    read = {
        PurePosixPath(path).name: path
        for folder in FOLDERS
        for path in present
        if str(PurePosixPath(path).parent) == folder and path.endswith(".yaml")
    }
    return {read[name]: present[read[name]] for name in sorted(read) if read[name] != OURS}


def rewritten(present: Files, ours: Network, recorded: Files, shown: list[dict[str, Any]]) -> Files:
    """Return the files of others beside the role's own. Settings of an interface that the site left out come back.

    They do not come back if the role could not keep them, such as the address of a port that is now a member of a bond.
    """
    return {
        path: without(present[path] if problems_of({path: text}, ours, shown) else text, ours)
        for path, text in originals(present, recorded).items()
    }


def originals(present: Files, recorded: Files) -> Files:
    """Return the files of others as they are without the role. A file that others changed after the record stays."""
    ours = own(present)
    return {
        path: recorded[path] if path in recorded and without(recorded[path], ours) == text else text
        for path, text in others(present).items()
    }


def own(present: Files) -> Network:
    """Return the interfaces in the role's own file."""
    try:
        data = yaml.safe_load(present.get(OURS, ""))
    except yaml.YAMLError:
        return {}
    network = data.get("network") if isinstance(data, dict) else None
    return {kind: each for kind, each in (network or {}).items() if isinstance(each, dict)}


def without(text: str, ours: Network) -> str:
    """Return a file without the settings that the role replaces; the same text if it cannot be rewritten."""
    try:
        return _edited(text, ours)
    except Unclear:
        return text  # `problems_of` names it


def _edited(text: str, ours: Network) -> str:
    """Write the entries that have replaced settings again without them, each in one line. Raises Unclear."""
    entries = [
        (kind, name, entry, _remaining_settings(kind, name.value, entry, ours))
        for kind, name, entry in _entries(text)
    ]
    edits = [(name, entry, settings) for _, name, entry, settings in entries if settings != entry.value]
    if edits and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise Unclear(edits[0][0], "muster cannot rewrite a file with YAML aliases (*): write them out")
    result = text
    for name, entry, settings in reversed(edits):
        line = _line(_mapping(settings), text)
        result = f"{result[: name.end_mark.index]}: {line}{result[_end(entry) :]}"
    wanted = [(kind, name.value, _values(_mapping(settings))) for kind, name, _, settings in entries]
    if edits and [(kind, name.value, _values(entry)) for kind, name, entry in _entries(result)] != wanted:
        raise Unclear(edits[0][0], f"muster cannot rewrite {edits[0][0].value} exactly: write it in one line")
    return result


def _entries(text: str) -> Iterator[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """Yield kind, name and settings of each interface in a file. Raises Unclear."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Unclear(None, "it is no YAML: correct it", mark.line + 1 if mark else 1) from error
    for key, network in _pairs(root) if root else ():
        if key.value != "network":
            raise Unclear(key, f"netplan has no key `{key.value}`: remove it")
        for kind, interfaces in _pairs(network):
            if kind.value not in {"version", "renderer", "openvswitch"}:
                for name, entry in _pairs(interfaces):
                    _pairs(entry)
                    yield kind.value, name, entry


def _pairs(node: yaml.Node) -> Pairs:
    """Return the pairs of a mapping. Raises Unclear for another node, and for a key that occurs twice."""
    if not isinstance(node, yaml.MappingNode):
        raise Unclear(node, "keys with values are missing: correct it")
    keys = [key.value for key, _ in node.value]
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or keys.count(key.value) > 1:
            raise Unclear(key, f"`{key.value}` occurs twice or is no text: correct it")
    return list(node.value)


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    """Return the items of a list; none if there is no list. Raises Unclear for another node."""
    if node is not None and not isinstance(node, yaml.SequenceNode):
        raise Unclear(node, "a list is missing: correct it")
    return list(node.value) if node else []


def _text(node: yaml.Node | None) -> str:
    """Return a value; empty if there is none. Raises Unclear for a list or a mapping."""
    if node is not None and not isinstance(node, yaml.ScalarNode):
        raise Unclear(node, "one value is missing: correct it")
    return str(node.value) if node else ""


def _address(item: yaml.Node) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """Return an item of `addresses`: an address, or one with options. Raises Unclear."""
    node = _pairs(item)[0][0] if isinstance(item, yaml.MappingNode) and item.value else item
    try:
        return ipaddress.ip_interface(_text(node))
    except ValueError as error:
        raise Unclear(item, f"`{_text(node)}` is no address: correct it") from error


def _remaining_settings(kind: str, name: str, entry: yaml.Node, ours: Network) -> Pairs:
    """Return the settings of an interface that stay in the file of others, beside those of the role."""
    mine = ours.get(kind, {}).get(name)
    settings = []
    for key, value in entry.value:
        remaining: yaml.Node | None = value
        if mine is None:
            pass
        elif key.value in {"dhcp4", "dhcp6", "mtu"} and key.value in mine:
            remaining = value if _text(value).lower() == str(mine[key.value]).lower() else None
        elif key.value == "interfaces" and "interfaces" in mine:
            remaining = value if {_text(each) for each in _items(value)} <= set(mine["interfaces"]) else None
        elif key.value == "parameters" and "parameters" in mine:
            set_here = mine["parameters"]
            pairs = [
                (each, node)
                for each, node in _pairs(value)
                if each.value not in set_here or node.value == str(set_here[each.value])
            ]
            remaining = value if pairs == value.value else _mapping(pairs) if pairs else None
        elif key.value == "gateway4":
            remaining = None if _replaces_gateway(_text(value), name, mine, ours) else value
        elif key.value in {"addresses", "routes"}:
            replaces = _replaces_address if key.value == "addresses" else _replaces_route
            items = [each for each in _items(value) if not replaces(each, name, mine, ours)]
            remaining = (
                value if items == value.value else yaml.SequenceNode(value.tag, items) if items else None
            )
        if remaining is not None:
            settings.append((key, remaining))
    return settings


def _replaces_address(item: yaml.Node, name: str, mine: dict[str, Any], ours: Network) -> bool:
    """Return whether the role gives the interface another IPv4 address, or moves this one from a member away."""
    address = _address(item)
    if name in _members(ours):
        return str(address.ip) in {each.partition("/")[0] for each in _all(ours, "addresses")}
    return address.version == 4 and "addresses" in mine and str(address) not in mine["addresses"]


def _replaces_route(route: yaml.Node, name: str, mine: dict[str, Any], ours: Network) -> bool:
    values = {key.value: value for key, value in _pairs(route)}
    via = _text(values.get("via"))
    is_default = _text(values.get("to")) in {"default", "0.0.0.0/0"} and "table" not in values
    is_mine = via in {each["via"] for each in mine.get("routes", [])}
    return is_default and ":" not in via and not is_mine and _replaces_gateway(via, name, mine, ours)


def _replaces_gateway(gateway: str, name: str, mine: dict[str, Any], ours: Network) -> bool:
    """Return whether the role gives the interface a default route, or moves this one from a member away."""
    if name in _members(ours):
        return gateway in {each["via"] for each in _all(ours, "routes")}
    return "routes" in mine


def _refuse_file(path: str, text: str, ours: Network, shown: list[dict[str, Any]]) -> None:
    """Raise Unclear for the first entry of a file that the role cannot keep beside its own."""
    if PurePosixPath(path).name == PurePosixPath(OURS).name:
        raise Unclear(None, "it has the name of the file of muster: remove it")
    for kind, name, entry in _entries(text):
        _refuse_entry(kind, name.value, entry, ours, shown)
    if _edited(text, ours) != text and not path.startswith("/etc/netplan/"):
        raise Unclear(None, "it has settings that muster replaces: copy it to /etc/netplan")


def _refuse_entry(kind: str, name: str, entry: yaml.Node, ours: Network, shown: list[dict[str, Any]]) -> None:
    """Raise Unclear if an entry cannot stay beside the interfaces of the role."""
    values = {key.value: value for key, value in entry.value}
    kinds = [each for each, named in ours.items() if name in named]
    if kinds and kind not in kinds:
        raise Unclear(entry, f"{name} is in `{kind}`, and in `{kinds[0]}` by the site file: remove the entry")
    if kind not in {"bonds", "bridges", "vlans"}:
        _refuse_match(name, values, ours, shown)
    if kinds:
        _refuse_loss(kind, name, entry, ours)
        return
    taken = _members(ours) | {
        each for named in ours.values() for each, mine in named.items() if "addresses" in mine
    }
    for port in _items(values.get("interfaces")) if kind in {"bonds", "bridges"} else ():
        if _text(port) in taken:
            raise Unclear(
                port, f"{_text(port)} is a port of {name}, but not by the site file: remove it here"
            )
    if kind == "vlans":
        link, number = _text(values.get("link")), _text(values.get("id"))
        if link in _members(ours):
            raise Unclear(entry, f"{name} is over {link}, a member of a bond: put it over the bond")
        for other, mine in ours.get("vlans", {}).items():
            if (link, number) == (mine["link"], str(mine["id"])):
                raise Unclear(
                    entry, f"{name} is the VLAN {number} over {link}, as {other} of the site file: remove it"
                )


def _refuse_match(
    name: str, values: dict[str, yaml.Node], ours: Network, shown: list[dict[str, Any]]
) -> None:
    """Raise Unclear if `match` and `set-name` make an entry one for another interface than its name says."""
    renamed, match = _text(values.get("set-name")), values.get("match")
    wanted = {key.value: value for key, value in _pairs(match)} if match else {}
    where = match or values.get("set-name")
    pattern, mac = _text(wanted.get("name")) or "*", _text(wanted.get("macaddress")).lower()
    for port in ours.get("ethernets", {}):
        has = [link for link in shown if link.get("ifname") == port]
        macs = {str(link.get("permaddr", link.get("address"))).lower() for link in has}
        by_name = pattern.startswith("!") or any(fnmatch.fnmatchcase(port, each) for each in pattern.split())
        selects = match is not None and by_name and (not mac or mac in macs)
        if name != port and (renamed == port or selects):
            raise Unclear(
                where, f"`{name}` is also for {port}: name the entry {port}, or exclude {port} in `match`"
            )
        is_sure = match is None or renamed == port or (selects and (pattern == port or bool(mac)))
        if name == port and (renamed not in {"", port} or not is_sure):
            raise Unclear(
                where, f"`{name}` can be another interface than {port}: give the entry another name"
            )


def _refuse_loss(kind: str, name: str, entry: yaml.Node, ours: Network) -> None:
    """Raise Unclear if settings of an interface would be lost that the site file does not replace."""
    values, mine = {key.value: value for key, value in entry.value}, ours[kind][name]
    for key in sorted({"id", "link"} & set(mine) & set(values)):
        if _text(values[key]) != str(mine[key]):  # stays: netplan refuses a VLAN without it in any file
            raise Unclear(values[key], f"`{key}` of {name} is {mine[key]} in the site file: correct it here")
    addresses = _items(values.get("addresses"))
    lost = [each for each in addresses if _replaces_address(each, name, mine, ours)]
    several = name not in _members(ours) and sum(_address(each).version == 4 for each in addresses) > 1
    if lost and (several or not isinstance(lost[0], yaml.ScalarNode)):
        raise Unclear(
            lost[0], f"{name} would lose an address or its options: remove those that the host can miss"
        )
    for route in _items(values.get("routes")):
        more = sorted({key.value for key, _ in _pairs(route)} - {"to", "via"})
        if more and _replaces_route(route, name, mine, ours):
            raise Unclear(route, f"the default route of {name} would lose `{more[0]}`: remove it")
    settings = {key.value: (key, value) for key, value in _remaining_settings(kind, name, entry, ours)}
    for key in ROUTED if name in _members(ours) else ():
        if key in settings:
            raise Unclear(
                settings[key][0], f"`{key}` has no effect on {name}, a member of a bond: give it to the bond"
            )
    gateways = [settings["gateway4"][1]] if "gateway4" in settings else []
    for route in _items(settings["routes"][1]) if "routes" in settings else ():
        options = {key.value: value for key, value in _pairs(route)}
        gateways += [options["via"]] if "via" in options and "on-link" not in options else []
    for address in mine.get("addresses", []):
        network = ipaddress.ip_interface(address).network
        for gateway in gateways:
            if ":" not in _text(gateway) and _address(gateway) not in network:
                raise Unclear(
                    gateway, f"{name} in {network} does not reach {_text(gateway)}: remove the route"
                )


def _members(ours: Network) -> set[str]:
    return {member for bond in ours.get("bonds", {}).values() for member in bond.get("interfaces", [])}


def _all(ours: Network, key: str) -> list[Any]:
    """Return the items of a list of all interfaces of the role."""
    return [each for named in ours.values() for mine in named.values() for each in mine.get(key, [])]


def _mapping(pairs: Pairs) -> yaml.MappingNode:
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs)


def _end(node: yaml.Node) -> int:
    """Return the index after the last character of a node. The mark of a block is at the next token."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _line(node: yaml.Node, text: str) -> str:
    """Return a node in one line. A value keeps its form, with quotes if it needs them in a line."""
    if isinstance(node, yaml.MappingNode):
        return "{" + ", ".join(f"{_line(key, text)}: {_line(value, text)}" for key, value in node.value) + "}"
    if isinstance(node, yaml.SequenceNode):
        return "[" + ", ".join(_line(item, text) for item in node.value) + "]"
    if node.style in {"'", '"'} or PLAIN.fullmatch(node.value):
        return text[node.start_mark.index : node.end_mark.index]
    return "'" + str(node.value).replace("'", "''") + "'" if node.value else ""


def _values(node: yaml.Node) -> Any:
    """Return the texts of a node, without their form."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: _values(value) for key, value in node.value}
    return [_values(each) for each in node.value] if isinstance(node, yaml.SequenceNode) else node.value


class FilterModule:
    """The filters for the files of netplan."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "netplan_problems": problems_of,
            "netplan_rewritten": rewritten,
            "netplan_originals": originals,
            "netplan_own": own,
        }
