"""The stage host_network: bonds, VLANs, MTU and addresses of the hosts, as the site file says."""

import ipaddress
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from deployment import addresses
from deployment.site import Finding, Place, Site
from deployment.stages import ontap
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.networks import lif_networks
from deployment.stages.words import count, hosts_on_removal

_KERNEL_MTU: Final = 1500
"""MTU of an interface without its own value."""

_OF_KUBERNETES: Final = re.compile(
    r"docker[0-9]+|cni[0-9]+|kube-\w+|nodelocaldns|flannel\.[0-9]+|vxlan\.calico|tunl0|cali\w*|cilium_\w+|lxc\w*"
)
"""Interfaces that Docker, kubespray or a network plugin makes."""

_MINIMUM_SECONDS: Final = 30
"""Below this time, the way back of a host can begin before its change."""

_Interfaces = Mapping[str, Mapping[str, Any]]


class HostNetwork(StageDefinition):
    """The stage for hosts with `interfaces`. A host that is unreachable after a change restores its former network."""

    name: ClassVar[str] = "host_network"

    def missing_entry(self, site: Site) -> str:
        return "" if any("interfaces" in host for host in site.hosts.values()) else "hosts.NAME.interfaces"

    def problems(self, site: Site) -> Iterator[Finding]:
        networks = _networks(site)
        yield from _gateway_problems(site, networks)
        seconds = str(site.get("vars", "host_network_seconds", default=_MINIMUM_SECONDS)).lstrip("+")
        if seconds.isdigit() and int(seconds) < _MINIMUM_SECONDS:
            yield Finding(
                ("vars", "host_network_seconds"),
                f"vars.host_network_seconds: a host cannot apply a change in {seconds} seconds: set at least "
                f"{_MINIMUM_SECONDS}",
            )
        for name, host in site.hosts.items():
            place: Place = ("hosts", name, "interfaces")
            interfaces = host.get("interfaces", {})
            yield from _bond_problems(place, interfaces)
            yield from _vlan_problems(place, interfaces)
            yield from _address_problems(place, interfaces, networks)
            yield from _network_problems(place, interfaces, networks)
            yield from _storage_problems(site, place, interfaces, networks)
            gateways = [
                each
                for each, entry in interfaces.items()
                if site.get("network", "host_networks", entry.get("network", ""), "gateway")
            ]
            if len(gateways) > 1:
                yield Finding(
                    (*place, gateways[1]),
                    f"{name}: {' and '.join(gateways)} are in networks with a gateway: a host has one default route. "
                    "Remove the other gateway",
                )

    def notes(self, site: Site) -> Iterator[str]:
        owners = {text: owner for _, owner, text in addresses.fixed(site)}
        for name, network in site.get("network", "host_networks", default={}).items():
            if network.get("gateway") in owners:
                yield (
                    f"the gateway of network.host_networks.{name} is {owners[network['gateway']]} "
                    f"({network['gateway']}): muster does not make it a router"
                )

        for host, entry in site.hosts.items():
            for name, interface in entry.get("interfaces", {}).items():
                number = name.rpartition(".")[2]
                if "vlan" in interface and number.isdecimal() and int(number) != interface["vlan"]:
                    place: Place = ("hosts", host, "interfaces", name, "vlan")
                    yield site.problem(
                        place, f"{name} of {host} is VLAN {interface['vlan']}, not {number}: rename it"
                    )

    def variables(self, site: Site) -> Variables:
        roce = site.get("network", "roce", default={})
        return {
            "host_network_networks": site.get("network", "host_networks"),
            "host_network_roce_priority": roce.get("cos"),
            "host_network_roce_dscp": roce.get("dscp"),
            "host_network_reaches_storage": None if ontap.STAGE.is_in(site) else self.is_in(site),
        }

    def host_variables(self, host: dict[str, Any]) -> Variables:
        return {"host_network_interfaces": host.get("interfaces")}

    def sentence(self, site: Site) -> str:
        hosts = count(sum("interfaces" in host for host in site.hosts.values()), "host")
        seconds = self.value(site, "host_network_seconds")
        return (
            f"interfaces of {hosts}, first on one; THE NETWORK OF A HOST IS DOWN FOR SECONDS. "
            f"A host that muster does not reach afterwards restores its former network within {seconds} seconds"
        )

    def removal_sentence(self, site: Site) -> str:
        return hosts_on_removal(site)


def _networks(site: Site) -> dict[str, ipaddress.IPv4Network]:
    """Return the networks of the hosts by name; without those that are no network, which `addresses` reports."""
    networks = {}
    for name, network in site.get("network", "host_networks", default={}).items():
        try:
            networks[name] = ipaddress.IPv4Network(network["cidr"])
        except ValueError:
            continue
    return networks


def _is_host_of(text: str, network: ipaddress.IPv4Network) -> bool:
    """Whether a text is an address of a network, and neither the network itself nor its broadcast address."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    ends = {network.network_address, network.broadcast_address} if network.prefixlen < 31 else set()
    return address in network and address not in ends


def _gateway_problems(site: Site, networks: Mapping[str, ipaddress.IPv4Network]) -> Iterator[Finding]:
    """Yield gateways that are no other host of their network."""
    gateways = {
        name: network["gateway"]
        for name, network in site.get("network", "host_networks", default={}).items()
        if "gateway" in network
    }
    for name in sorted(gateways.keys() & networks):
        place: Place = ("network", "host_networks", name, "gateway")
        if not _is_host_of(gateways[name], networks[name]):
            yield Finding(
                place,
                f"network.host_networks.{name}: the gateway {gateways[name]} is no host of {networks[name]}: "
                "correct one of them",
            )
        elif networks[name].prefixlen == networks[name].max_prefixlen:
            yield Finding(
                place,
                f"network.host_networks.{name}: {networks[name]} has no address beside its gateway: correct it",
            )
    for host, entry in site.hosts.items():
        for name, interface in entry.get("interfaces", {}).items():
            if interface.get("address", "") == gateways.get(interface.get("network")):
                yield Finding(
                    ("hosts", host, "interfaces", name, "address"),
                    f"{name}: {interface['address']} is the gateway of the network {interface['network']}: correct one "
                    "of them",
                )


def _bond_problems(place: Place, interfaces: _Interfaces) -> Iterator[Finding]:
    """Yield members of two bonds, and members that carry an address, a VLAN or a bond."""
    owners: dict[str, str] = {}
    for name, entry in interfaces.items():
        here = (*place, name)
        if _OF_KUBERNETES.fullmatch(name):
            yield Finding(
                here, f"{name} is an interface of Docker, Kubernetes or a network plugin: remove the entry"
            )
        if entry.get("mode", "802.3ad") != "802.3ad" and "lacp_rate" in entry:
            yield Finding(
                (*here, "lacp_rate"), f"{name}: {entry['mode']} does not speak LACP: remove lacp_rate"
            )
        if "members" in entry and "parent" in entry:
            yield Finding(
                here, f"{name} has members and a parent: it is a bond or a VLAN, so remove one of them"
            )
        for member in entry.get("members", []):
            other = owners.setdefault(member, name)
            if other != name:
                yield Finding(
                    here, f"{member} is a member of {other} and of {name}: remove it from one of them"
                )
            elif member in interfaces:
                yield Finding(
                    here,
                    f"{member} is a member of {name} and has an entry of its own: remove the entry, because the bond "
                    "has MTU and addresses",
                )


def _vlan_problems(place: Place, interfaces: _Interfaces) -> Iterator[Finding]:
    """Yield VLANs without a parent below them, with a larger MTU than the parent, or with the id of another."""
    owners: dict[tuple[str, int], str] = {}
    for name, entry in interfaces.items():
        if "parent" not in entry:
            continue
        other = owners.setdefault((entry["parent"], entry["vlan"]), name)
        if other != name:
            yield Finding(
                (*place, name, "vlan"),
                f"{name} is the VLAN {entry['vlan']} of {entry['parent']}, as {other}: remove one of them",
            )
        parent = interfaces.get(entry["parent"])
        if parent is None or "parent" in parent:
            yield Finding(
                (*place, name, "parent"),
                f"the parent of {name}, {entry['parent']}, is no bond and no interface of its host: add it",
            )
        elif entry.get("mtu", 0) > parent.get("mtu", _KERNEL_MTU):
            yield Finding(
                (*place, name, "mtu"),
                f"{name} has the MTU {entry['mtu']}, and {entry['parent']} below it {parent.get('mtu', _KERNEL_MTU)}: "
                f"give {entry['parent']} at least the MTU of its VLANs",
            )
        if entry.get("roce"):
            yield Finding(
                (*place, name, "roce"), f"{name} is a VLAN: set roce for {entry['parent']} below it"
            )


def _address_problems(
    place: Place, interfaces: _Interfaces, networks: Mapping[str, ipaddress.IPv4Network]
) -> Iterator[Finding]:
    """Yield addresses outside of the declared network, and addresses that two interfaces of the host have."""
    owners: dict[str, str] = {}
    for name, entry in interfaces.items():
        if "address" not in entry:
            continue
        here, address, network = (*place, name, "address"), entry["address"], networks.get(entry["network"])
        if network is None:
            yield Finding(
                (*place, name, "network"),
                f"{name}: there is no network {entry['network']}: declare it in network.host_networks with its cidr",
            )
        elif not _is_host_of(address, network):
            yield Finding(
                here,
                f"{name}: {address} is no address of a host in the network {entry['network']} ({network}): "
                "correct the address or name its network",
            )
        other = owners.setdefault(address, name)
        if other != name:
            yield Finding(here, f"{name} has the address of {other}, {address}: correct one of them")


def _storage_problems(
    site: Site, place: Place, interfaces: _Interfaces, networks: Mapping[str, ipaddress.IPv4Network]
) -> Iterator[Finding]:
    """Yield interfaces in the network of the storage whose MTU is smaller than that of its interfaces."""
    if not ontap.STAGE.is_in(site):
        return
    mtu = int(ontap.STAGE.value(site, "ontap_mtu"))
    for name, entry in interfaces.items():
        network, own = networks.get(entry.get("network", "")), entry.get("mtu", _KERNEL_MTU)
        if network and own < mtu and any(map(network.overlaps, lif_networks(site))):
            yield Finding(
                (*place, name),
                f"{name} has the MTU {own} in {network}, where the storage sends packets of {mtu} bytes: set mtu: "
                f"{mtu}, or lower network.mtu",
            )


def _network_problems(
    place: Place, interfaces: _Interfaces, networks: Mapping[str, ipaddress.IPv4Network]
) -> Iterator[Finding]:
    """Yield interfaces whose networks overlap: the kernel would send packets for both through one of them."""
    by_name = {
        name: networks[entry["network"]]
        for name, entry in interfaces.items()
        if entry.get("network") in networks
    }
    for first, second in itertools.combinations(by_name, 2):
        if by_name[first].overlaps(by_name[second]):
            yield Finding(
                (*place, second, "network"),
                f"{first} and {second} are in networks that overlap ({by_name[first]} and {by_name[second]}): "
                "give each interface a network of its own, or make them a bond",
            )


STAGE: Final = HostNetwork()
