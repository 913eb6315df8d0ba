"""Reads the network of a host: RDMA ports (`ibstat`), interfaces (`ip -json address`, `ethtool`)."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from validation.errors import LayerError
from validation.judge.hosts.host_facts import Ethernet, Interface, Port


class _Address(msgspec.Struct, frozen=True):
    local: str = ""


class _Interface(msgspec.Struct, frozen=True):
    ifname: str
    mtu: int
    operstate: str = ""
    link: str | None = None
    master: str = ""
    addr_info: list[_Address] = []


def read_ibstat(text: str) -> list[Port]:
    """Return the ports in the order of the text. Empty for an empty text.

    Raises LayerError for a text without an adapter, or an unknown line.
    """
    ports: list[dict[str, str]] = []
    unknown: list[list[str]] = []
    adapter = firmware = ""
    before: list[str] = []
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if match := re.fullmatch(r"CA '(\S+)'", line.strip()):
            adapter, firmware = match[1], ""
        elif key == "Firmware version":
            firmware = value
        elif match := re.fullmatch(r"Port (\d+)", key, re.IGNORECASE):
            ports.append({"adapter": adapter, "port": match[1], "firmware": firmware})
            unknown.append(before)
            before = []
        elif colon and ports and key in _OF_PORT and key not in ports[-1]:
            ports[-1][key] = value
        elif line.strip() and not (colon and key in _OF_ADAPTER):
            (unknown[-1] if ports else before).append(line.strip())
    if not adapter and text.strip():
        raise LayerError(f"ibstat: {text.strip().splitlines()[0][:100]}")
    if before:
        raise LayerError(f"ibstat: muster does not know this line: {before[0][:100]}")
    return [_port(port, lines) for port, lines in zip(ports, unknown, strict=True)]


_OF_ADAPTER: Final = frozenset(
    {"CA type", "Number of ports", "Hardware version", "Node GUID", "System image GUID", "Firmware version"}
)
_OF_PORT: Final = frozenset(
    {
        "State",
        "Physical state",
        "Rate",
        "Base lid",
        "LMC",
        "SM lid",
        "Capability mask",
        "Port GUID",
        "Link layer",
    }
)


def read_networks(text: str) -> dict[str, Interface]:
    """Return the interfaces by name, from `ip -json address` or `ip -json link`, which has no addresses.

    Raises LayerError.
    """
    try:
        interfaces = msgspec.json.decode(text, type=list[_Interface])
    except msgspec.DecodeError as error:
        raise LayerError(f"ip -json: {error}") from error
    if len({face.ifname for face in interfaces}) < len(interfaces):
        raise LayerError("ip -json: two interfaces have the same name")
    try:
        return {
            face.ifname: Interface(
                face.mtu,
                [str(ip_address(info.local)) for info in face.addr_info if info.local],
                face.operstate,
                face.link or "",
                face.master,
            )
            for face in interfaces
        }
    except ValueError as error:
        raise LayerError(f"ip -json: {error}") from error


def _port(fields: dict[str, str], unknown: list[str]) -> Port:
    rate = re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", fields.get("Rate", ""))
    unread = [] if rate else [f"Rate: {fields.get('Rate', '')}"]
    return Port(
        adapter=fields["adapter"],
        port=int(fields["port"]),
        state=fields.get("State", ""),
        physical_state=fields.get("Physical state", ""),
        rate_gbits=float(rate[0]) if rate else 0.0,
        link_layer=fields.get("Link layer", ""),
        firmware=fields["firmware"],
        unknown=[*unread, *unknown],
    )


_SPEEDS: Final = {"Mb/s": 1, "Gb/s": 1000}
_YES: Final = {"yes": True, "no": False, "no (No cable)": False, "no (Autoneg, No partner detected)": False}
"""The texts after `Link detected`. Other reasons for no link, such as `Overheat`, are faults."""


def read_ethtool(text: str) -> list[Ethernet]:
    """Return the interfaces, in order.

    Raises LayerError if there is no interface, or one is described twice.
    """
    fields: dict[str, dict[str, str]] = {}
    of_one: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"Settings for (\S+):", line.strip()):
            if match[1] in fields:
                raise LayerError(f"ethtool: {match[1]} is described twice")
            of_one, key = fields.setdefault(match[1], {}), ""
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        key = name if colon else key
        of_one[key] = f"{of_one.get(key, '')} {value if colon else name}".strip()
    if not fields:
        raise LayerError(f"ethtool: no interface in its output: {text.strip()[:100]!r}")
    return [_ethernet(name, of_one) for name, of_one in fields.items()]


def _ethernet(name: str, fields: Mapping[str, str]) -> Ethernet:
    speed = re.fullmatch(r"(\d+)(Mb/s|Gb/s)", fields.get("Speed", ""))
    modes = re.findall(r"(\d+)base", fields.get("Supported link modes", ""))
    return Ethernet(
        name=name,
        speed_mbits=int(speed[1]) * _SPEEDS[speed[2]] if speed else None,
        has_link=_YES.get(fields.get("Link detected", "")),
        duplex=fields.get("Duplex", ""),
        supported_mbits=max((int(mode) for mode in modes), default=0),
    )
