"""Reads the network of a host: ports of RDMA adapters (`ibstat`) and interfaces (`ip -json address`)."""

import re
from ipaddress import ip_address

import msgspec

from validation.errors import LayerError
from validation.judge.hosts.host_facts import Interface, Port


class _Address(msgspec.Struct, frozen=True):
    local: str = ""


class _Interface(msgspec.Struct, frozen=True):
    ifname: str
    mtu: int
    addr_info: list[_Address] = []


def read_ibstat(text: str) -> list[Port]:
    """The ports, in order; none if the host has no adapter. Raises LayerError for an answer without one."""
    ports: list[dict[str, str]] = []
    adapter = ""
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if match := re.fullmatch(r"CA '(\S+)'", line.strip()):
            adapter = match[1]
        elif match := re.fullmatch(r"Port (\d+)", key, re.IGNORECASE):
            ports.append({"adapter": adapter, "port": match[1]})
        elif colon and ports:
            ports[-1][key] = value
    if not adapter and text.strip():
        raise LayerError(f"ibstat: {text.strip().splitlines()[0][:100]}")
    return [_port(port) for port in ports]


def read_networks(text: str) -> dict[str, Interface]:
    """The interfaces by name, of `ip -json address`; `ip -json link` has no addresses. Raises LayerError."""
    try:
        interfaces = msgspec.json.decode(text, type=list[_Interface])
    except msgspec.DecodeError as error:
        raise LayerError(f"ip -json: {error}") from error
    try:
        return {
            face.ifname: Interface(
                face.mtu, [str(ip_address(info.local)) for info in face.addr_info if info.local]
            )
            for face in interfaces
        }
    except ValueError as error:
        raise LayerError(f"ip -json: {error}") from error


def _port(fields: dict[str, str]) -> Port:
    rate = re.match(r"[\d.]+", fields.get("Rate", ""))
    return Port(
        adapter=fields["adapter"],
        port=int(fields["port"]),
        state=fields.get("State", ""),
        physical_state=fields.get("Physical state", ""),
        rate_gbits=float(rate[0]) if rate else 0.0,
        link_layer=fields.get("Link layer", ""),
    )
