"""Checks the addresses and networks of a site file for invalid values and special ranges."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from deployment.site import Finding, Place, Site

POD_SUBNET: Final = "10.233.64.0/18"
SERVICE_SUBNET: Final = "10.233.0.0/18"
"""The default networks of kubespray, for a site file without its own."""

_ADDRESSES: Final = frozenset(
    {"address", "node_address", "gateway", "management_lif", "data_lif", "servers", "upstream_dns"}
)
_NETWORKS: Final = frozenset({"pod_subnet", "service_subnet", "destination", "export_cidrs", "cidr"})
_OF_MACHINES: Final = frozenset({"address", "node_address", "gateway", "management_lif", "data_lif"})
_LOCAL: Final = frozenset({"pod_subnet", "service_subnet", "cidr"})
"""Networks of pods, services and hosts."""

OF_THIS_MACHINE: Final = (
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
)
"""Names of the machine itself."""

_NUMBERS: Final = re.compile(r"[0-9.]+")
_SPECIAL: Final = {
    ipaddress.ip_network("169.254.0.0/16"): "link-local",
    ipaddress.ip_network("224.0.0.0/4"): "multicast",
    ipaddress.ip_network("240.0.0.0/4"): "reserved",
}
"""Special IPv4 ranges in IANA's registry that neither a host nor a pod can use."""
_NEVER: Final = {
    ipaddress.ip_network("0.0.0.0/8"): "the unspecified network",
    ipaddress.ip_network("127.0.0.0/8"): "loopback",
    **_SPECIAL,
}
"""Ranges that no network of pods or hosts can have. `site_checks` judges such addresses of single hosts."""


def is_loopback(address: str) -> bool:
    """Return whether an address or a name is one of the machine itself.

    Example: `is_loopback("::ffff:127.0.0.1")` returns `True`.
    """
    if address.lower().rstrip(".") in OF_THIS_MACHINE or address.lower().endswith(".localhost"):
        return True
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(number, "ipv4_mapped", None) or number
    return bool(mapped.is_loopback or mapped.is_unspecified)


def malformed(site: Site) -> Iterator[Finding]:
    """Yield the invalid addresses and networks, and those in a special range. Names of hosts are not resolved."""
    for place, value in _values(site.data, ()):
        keys = [key for key in place if isinstance(key, str)]
        where, key, kind = ".".join(map(str, place)), keys[-1], ""
        try:
            if key in _ADDRESSES and (_NUMBERS.fullmatch(value) or ":" in value):
                ipaddress.ip_address(value)
                ranges = _NEVER if "data_lifs" in keys else _SPECIAL
                kind = _special(value, ranges) if key in {*_OF_MACHINES, "upstream_dns"} else ""
            elif key in _NETWORKS:
                ipaddress.ip_network(value)
                kind = _special(value, _NEVER) if key in _LOCAL else ""
            elif key == "netmask":
                mask = ipaddress.ip_network(f"0.0.0.0/{value}")
                kind = (
                    "no mask" if "." in value and (value != str(mask.netmask) or not mask.prefixlen) else ""
                )
        except ValueError as error:
            yield Finding(place, f"{where}: {_fix(value, error)}")
        if kind:
            example = (
                "255.255.255.0, for example" if key == "netmask" else "an address or network of the site"
            )
            yield Finding(place, f"{where}: {value} is {kind}: write {example}")


def fixed(site: Site) -> Iterator[tuple[Place, str, str]]:
    """Yield the entry, the owner, and the address or DNS name of each host, switch and storage interface."""
    for name, host in site.hosts.items():
        yield ("hosts", name, "address"), name, host["address"]
        if "node_address" in host:
            yield ("hosts", name, "node_address"), f"the node {name}", host["node_address"]
        for interface, entry in host.get("interfaces", {}).items():
            if "address" in entry:
                place: Place = ("hosts", name, "interfaces", interface, "address")
                yield place, f"{interface} of {name}", entry["address"]
    for name, switch in site.get("network", "switches", default={}).items():
        yield ("network", "switches", name, "address"), name, switch["address"]
    place = ("storage", "ontap")
    ontap = site.get(*place, default={})
    if ontap:
        yield (*place, "management_lif"), "storage.ontap.management_lif", ontap["management_lif"]
    for index, lif in enumerate(ontap.get("data_lifs", [])):
        yield (*place, "data_lifs", index, "address"), lif["name"], lif["address"]
    if lif := ontap.get("svm_management_lif"):
        yield (*place, "svm_management_lif", "address"), lif["name"], lif["address"]


def reached(site: Site) -> Iterator[tuple[Place, str, str]]:
    """Yield the entry, the owner, and the address or DNS name of each machine that hosts must reach.

    These are the machines of `fixed`, jump hosts, gateways, proxies, and servers of a bundle. DNS servers are left out.
    """
    yield from fixed(site)
    jumps: list[Place] = [("access", "jump"), *(("hosts", name, "jump") for name in site.hosts)]
    for place in jumps:
        jump = site.get(*map(str, place))
        if isinstance(jump, dict):
            yield (*place, "address"), "the jump host", jump["address"]
    for name, network in site.get("network", "host_networks", default={}).items():
        if "gateway" in network:
            place = ("network", "host_networks", name, "gateway")
            yield place, f"the gateway of {name}", network["gateway"]
    for place, url in servers(site):
        yield place, ".".join(map(str, place)), url.hostname or ""


def servers(site: Site) -> Iterator[tuple[Place, SplitResult]]:
    """Yield the URL of each server from which hosts fetch: the proxies, and those with the content of a bundle."""
    for place in (
        ("network", "proxy", "http"), ("network", "proxy", "https"), ("bundle", "files_url"), ("bundle", "registry"),
        ("validation", "registry"),
    ):  # fmt: skip
        text = site.get(*place)
        if text is not None:
            yield place, urlsplit(text if "://" in text else f"https://{text}")


def _special(value: str, ranges: Mapping[ipaddress.IPv4Network | ipaddress.IPv6Network, str]) -> str:
    """Return the kind of the first special range that overlaps an IPv4 address or network; empty for none."""
    network = ipaddress.ip_network(value)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped:
        network = ipaddress.ip_network(mapped)
    elif network.version == 6 and network.is_link_local:
        return "link-local"
    kinds = [kind for special, kind in ranges.items() if network.version == 4 and network.overlaps(special)]
    return kinds[0] if kinds else ""


def _fix(value: str, error: ValueError) -> str:
    if "host bits" in str(error):
        meant = ipaddress.ip_network(value, strict=False)
        return f"{value} is an address in a network: write {meant} for the network"
    return f"{value} is no address, network or mask: {str(error).rpartition(': ')[2]}; correct it"


def _values(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield every string in the site file except those under `vars`, which the roles check."""
    if isinstance(value, str) and place:
        yield place, value
    elif isinstance(value, dict):
        for key, nested in value.items():
            if (*place, key) not in {("vars",), ("bundle",), ("mirrors",)}:
                yield from _values(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _values(nested, (*place, index))
