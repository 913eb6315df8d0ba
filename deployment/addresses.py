"""The addresses and networks of a site file: invalid values and overlaps."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from deployment.site import Finding, Place, Site

POD_SUBNET: Final = "10.233.64.0/18"
SERVICE_SUBNET: Final = "10.233.0.0/18"
"""The default networks of kubespray, for a site file without its own."""

_ADDRESSES: Final = frozenset(
    {"address", "node_address", "gateway", "management_lif", "data_lif", "servers", "upstream_dns"}
)
_NETWORKS: Final = frozenset({"pod_subnet", "service_subnet", "destination", "export_cidrs"})
_NUMBERS: Final = re.compile(r"[0-9.]+")


def malformed(site: Site) -> Iterator[Finding]:
    """Yield the invalid addresses and networks. Names of hosts are not resolved: no network is needed for a check."""
    for place, value in _values(site.data, ()):
        keys = [key for key in place if isinstance(key, str)]
        where, key = ".".join(map(str, place)), keys[-1]
        try:
            if key in _ADDRESSES and (_NUMBERS.fullmatch(value) or ":" in value):
                ipaddress.ip_address(value)
            elif key in _NETWORKS:
                ipaddress.ip_network(value)
            elif key == "netmask":
                ipaddress.ip_network(f"0.0.0.0/{value}")
        except ValueError as error:
            yield Finding(place, f"{where}: {_fix(value, error)}")


def _fix(value: str, error: ValueError) -> str:
    if "host bits" in str(error):
        meant = ipaddress.ip_network(value, strict=False)
        return f"{value} is an address in a network: write {meant} for the network"
    return f"{value} is no address, network or mask: {str(error).rpartition(': ')[2]}; correct it"


def _values(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield every text below the file's own keys. The values under `vars` belong to the roles."""
    if isinstance(value, str) and place:
        yield place, value
    elif isinstance(value, dict):
        for key, nested in value.items():
            if (*place, key) not in {("vars",), ("bundle",), ("mirrors",)}:
                yield from _values(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _values(nested, (*place, index))
