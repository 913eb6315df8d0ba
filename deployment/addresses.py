"""The addresses and networks of a site file: what is none, what overlaps, and what nobody makes."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

_Place = tuple[str | int, ...]


class Entries(Protocol):
    """What is read of a site file here; `deployment.site.Site` has it."""

    @property
    def data(self) -> dict[str, Any]:
        """The file as plain data."""

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts by name."""

    def get(self, *path: str, default: Any = None) -> Any:
        """Return the value at `path`, or the default where the file has none."""

    def has_stage(self, name: str) -> bool:
        """Return whether the file has the stage's entry and does not declare the stage not applicable."""

    def problem(self, place: _Place, message: str) -> str:
        """Return a message about one entry, with file and line number in front."""


POD_SUBNET: Final = "10.233.64.0/18"
SERVICE_SUBNET: Final = "10.233.0.0/18"
"""The networks that kubespray takes where the site file names none."""

_NODE_PREFIX: Final = 24
"""The part of the pods' network that kubespray gives to each node, but with Calico, which shares out smaller ones."""

_ADDRESSES: Final = frozenset({"address", "gateway", "management_lif", "data_lif", "servers"})
_NETWORKS: Final = frozenset({"pod_subnet", "service_subnet", "destination", "export_cidrs"})
_NUMBERS: Final = re.compile(r"[0-9.]+")

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def problems(site: Entries) -> Iterator[str]:
    """Yield every problem with its line. Names of hosts are not resolved: a site file is checked without a network."""
    malformed = [*_malformed(site)]
    yield from malformed
    if not malformed:
        yield from _overlaps(site)
    yield from _unmade_ports(site)
    yield from _unmade_interfaces(site)
    yield from _packet_sizes(site)


def _malformed(site: Entries) -> Iterator[str]:
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
            yield site.problem(place, f"{where}: {_fix(value, error)}")


def _fix(value: str, error: ValueError) -> str:
    if "host bits" in str(error):
        meant = ipaddress.ip_network(value, strict=False)
        return f"{value} is an address in a network: write {meant} for the network"
    return f"{value} is no address, network or mask: {str(error).rpartition(': ')[2]}; correct it"


def _overlaps(site: Entries) -> Iterator[str]:
    """Yield networks of the cluster that share addresses with each other, with hosts or with the storage."""
    if not site.has_stage("deepops"):
        return
    pods = ipaddress.ip_network(site.get("kubernetes", "pod_subnet", default=POD_SUBNET))
    services = ipaddress.ip_network(site.get("kubernetes", "service_subnet", default=SERVICE_SUBNET))
    place: _Place = ("kubernetes",) if site.get("kubernetes") else ("versions", "kubernetes")
    named = site.get("kubernetes", default={})
    at_pods: _Place = ("kubernetes", "pod_subnet") if "pod_subnet" in named else place
    at_services: _Place = ("kubernetes", "service_subnet") if "service_subnet" in named else place
    if pods.version == services.version and pods.overlaps(services):
        yield site.problem(
            at_services, f"pods ({pods}) and services ({services}) share addresses: give one another network"
        )
    for what, network, where in (("pods", pods, at_pods), ("services", services, at_services)):
        for name, text in _fixed_addresses(site):
            if _is_in(text, network):
                yield site.problem(
                    where,
                    f"{name} has {text}, which is in the network of the {what} ({network}): name another one in "
                    f"kubernetes.{what.removesuffix('s')}_subnet",
                )
    plugin = site.get("kubernetes", "network_plugin", default="calico")
    max_hosts = 2 ** max(_NODE_PREFIX - pods.prefixlen, 0)
    if plugin != "calico" and pods.version == 4 and max_hosts < len(site.hosts):
        yield site.problem(
            at_pods,
            f"{pods} has room for {max_hosts} hosts with {plugin}, there are {len(site.hosts)}: take a larger network",
        )


def _fixed_addresses(site: Entries) -> Iterator[tuple[str, str]]:
    for name, host in site.hosts.items():
        yield name, host["address"]
    ontap = site.get("storage", "ontap", default={})
    if ontap:
        yield "storage.ontap.management_lif", ontap["management_lif"]
    for interface in ontap.get("data_lifs", []):
        yield interface["name"], interface["address"]


def _is_in(text: str, network: _Network) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False  # a name
    return address in network


def _unmade_ports(site: Entries) -> Iterator[str]:
    """Yield home ports on a VLAN, and VLANs on an interface group, that the file leaves out where it makes others."""
    ontap = site.get("storage", "ontap", default={})
    vlans = {(vlan["node"], f"{vlan['parent']}-{vlan['id']}") for vlan in ontap.get("vlans", [])}
    nodes = {group["node"] for group in ontap.get("interface_groups", [])}
    for index, interface in enumerate(ontap.get("data_lifs", [])):
        port = interface["home_port"]
        if vlans and re.search(r"-\d+$", port) and (interface["home_node"], port) not in vlans:
            yield site.problem(
                ("storage", "ontap", "data_lifs", index),
                f"{interface['name']} is to be on {port} of {interface['home_node']}, and storage.ontap.vlans makes no "
                "such port: add the VLAN there, or correct home_port",
            )
    for index, vlan in enumerate(ontap.get("vlans", [])):
        if nodes and re.fullmatch(r"a\d+[a-z]", vlan["parent"]) and vlan["node"] not in nodes:
            yield site.problem(
                ("storage", "ontap", "vlans", index),
                f"VLAN {vlan['id']} is to be on {vlan['parent']} of {vlan['node']}, and storage.ontap.interface_groups "
                "has none for this node: add it there",
            )


def _unmade_interfaces(site: Entries) -> Iterator[str]:
    """Yield backends that serve through an interface which no entry makes, and entries of one name."""
    known = {interface["address"] for interface in site.get("storage", "ontap", "data_lifs", default=[])}
    for index, backend in enumerate(site.get("storage", "backends", default=[])):
        address = backend.get("data_lif")
        if address and known and address not in known:
            yield site.problem(
                ("storage", "backends", index, "data_lif"),
                f"backend {backend['name']} serves through {address}, and no entry of storage.ontap.data_lifs has it "
                f"({', '.join(sorted(known))} are there): correct it",
            )
    for kind in ("backends", "classes"):
        names: set[str] = set()
        for index, entry in enumerate(site.get("storage", kind, default=[])):
            if entry["name"] in names:
                yield site.problem(
                    ("storage", kind, index), f"storage.{kind} has {entry['name']} twice: rename one"
                )
            names.add(entry["name"])


def _packet_sizes(site: Entries) -> Iterator[str]:
    network = site.get("network", default={})
    size, through = network.get("mtu", 0), network.get("switch_mtu", 9216)
    if network.get("switches") and size > through:
        yield site.problem(
            ("network", "mtu"),
            f"packets of {size} bytes do not go through switches of {through}: lower network.mtu",
        )
    numbers = [vlan["id"] for vlan in network.get("vlans", [])]
    for index, number in enumerate(numbers):
        if number in numbers[:index]:
            yield site.problem(("network", "vlans", index), f"VLAN {number} is there twice: leave one out")


def _values(value: Any, place: _Place) -> Iterator[tuple[_Place, str]]:
    """Yield every text below the file's own keys; what is under `vars` belongs to the roles."""
    if isinstance(value, str) and place:
        yield place, value
    elif isinstance(value, dict):
        for key, nested in value.items():
            if (*place, key) not in {("vars",), ("bundle",), ("mirrors",)}:
                yield from _values(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _values(nested, (*place, index))
