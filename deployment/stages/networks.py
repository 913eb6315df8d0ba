"""The networks of pods and services of a cluster: their family, their size, and overlaps with hosts and storage."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deployment import addresses, upstream
from deployment.site import Finding, Place, Site
from deployment.variable_checks import EXTRA, TRUE, extra

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAX_PREFIX: Final = 32
_MAX_PORT: Final = 65535
_MAX_SERVICE_PREFIX: Final = 28
_MIN_SERVICE_PREFIX: Final = 12
"""Minimum and maximum prefix length of a network of services. kubeadm needs ten addresses, and the API server refuses
more than a /12.
"""


def problems(site: Site, plugin: str) -> Iterator[Finding]:
    """Yield networks and addresses that would break a cluster of kubespray."""
    findings = list(_of_another_family(site))
    yield from findings
    if not findings:
        yield from _shared(site)
        yield from _too_small(site, plugin)
        yield from _exported(site)
    yield from _without_services(site, plugin)
    yield from _looping(site)
    yield from _virtual(site)


def of_cluster(site: Site) -> dict[str, _Network]:
    """Return the networks of pods and services."""
    return {
        "pods": ipaddress.ip_network(site.get("kubernetes", "pod_subnet", default=addresses.POD_SUBNET)),
        "services": ipaddress.ip_network(
            site.get("kubernetes", "service_subnet", default=addresses.SERVICE_SUBNET)
        ),
    }


def _place(site: Site, members: str) -> Place:
    """Return the entry that names a network of the cluster, else the nearest entry that exists."""
    key = f"{members.removesuffix('s')}_subnet"
    named = site.get("kubernetes", default={})
    if key in named:
        return ("kubernetes", key)
    return ("kubernetes",) if named else ("versions", "kubernetes")


def _of_another_family(site: Site) -> Iterator[Finding]:
    """Yield IPv6 networks and hosts: muster lets kubespray set up IPv4 alone."""
    fix = "muster sets up IPv4 alone (kubespray's ipv6_stack is off): name an IPv4"
    for members, network in of_cluster(site).items():
        if network.version != 4:
            yield Finding(
                _place(site, members), f"the network of the {members} ({network}) is IPv6: {fix} network"
            )
    for name, host in site.hosts.items():
        for key in ("address", "node_address"):
            if ":" in host.get(key, "") and not addresses.is_loopback(host[key]):
                yield Finding(("hosts", name, key), f"{name} has the IPv6 address {host[key]}: {fix} address")


def _shared(site: Site) -> Iterator[Finding]:
    """Yield networks of the cluster that share addresses with each other, with hosts or with the storage."""
    networks = of_cluster(site)
    pods, services = networks["pods"], networks["services"]
    if pods.overlaps(services):
        yield Finding(
            _place(site, "services"),
            f"pods ({pods}) and services ({services}) share addresses: give one another network",
        )
    for members, network in networks.items():
        for _, name, text in (*addresses.reached(site), *_of_kubespray(site)):
            if is_in(text, network):
                yield Finding(
                    _place(site, members),
                    f"{name} has {text}, which is in the network of the {members} ({network}): name another one in "
                    f"kubernetes.{members.removesuffix('s')}_subnet",
                )
        for name, entry in site.get("network", "host_networks", default={}).items():
            if ipaddress.ip_network(entry["cidr"]).overlaps(network):
                yield Finding(
                    _place(site, members),
                    f"network.host_networks.{name} ({entry['cidr']}) and the {members} ({network}) share addresses: "
                    "give one another network",
                )


def _too_small(site: Site, plugin: str) -> Iterator[Finding]:
    """Yield a network of pods that is too small for the hosts, and a network of services whose size is refused."""
    networks = of_cluster(site)
    pods, services = networks["pods"], networks["services"]
    facts, named = upstream.names(), extra(site)
    of_node = _number(named, "kube_network_node_prefix", facts["node_prefix"])
    part = _number(named, "calico_pool_blocksize", facts["block_prefix"]) if plugin == "calico" else of_node
    max_hosts = 2 ** max(part - pods.prefixlen, 0)
    max_pods = _number(named, "kubelet_max_pods", facts["max_pods"])
    if not of_node < _MAX_PREFIX or not part <= _MAX_PREFIX:
        name = "kube_network_node_prefix" if of_node >= _MAX_PREFIX else "calico_pool_blocksize"
        yield Finding(
            (*EXTRA, name), f"{'.'.join(EXTRA)}.{name}: no IPv4 network has such a prefix: lower it"
        )
    elif plugin != "calico" and max_pods > 2 ** (_MAX_PREFIX - of_node) - 2:
        yield Finding(
            (*EXTRA, "kubelet_max_pods"),
            f"the /{of_node} of one node has no addresses for {max_pods} pods: lower kubelet_max_pods or "
            f"kube_network_node_prefix in {'.'.join(EXTRA)}",
        )
    elif max_pods < 1:
        yield Finding(
            (*EXTRA, "kubelet_max_pods"), f"{'.'.join(EXTRA)}.kubelet_max_pods: no node runs a pod: raise it"
        )
    elif pods.prefixlen > of_node:
        yield Finding(
            _place(site, "pods"),
            f"{pods} is smaller than the /{of_node} of one node's pods: take a larger network",
        )
    elif max_hosts < len(site.hosts):
        yield Finding(
            _place(site, "pods"),
            f"{pods} is large enough for {max_hosts} hosts with {plugin}, there are {len(site.hosts)}: "
            "take a larger network",
        )
    if not _MIN_SERVICE_PREFIX <= services.prefixlen <= _MAX_SERVICE_PREFIX:
        yield Finding(
            _place(site, "services"),
            f"{services} is no network for services: take one from /{_MIN_SERVICE_PREFIX} to /{_MAX_SERVICE_PREFIX}",
        )


def _without_services(site: Site, plugin: str) -> Iterator[Finding]:
    """Yield a cluster without kube-proxy and without another program for its services, and invalid node ports."""
    variables = extra(site)
    on = {
        name
        for name in ("kube_proxy_remove", "calico_bpf_enabled")
        if str(variables.get(name)).lower() in TRUE
    }
    if on == {"kube_proxy_remove"} and plugin != "cilium":
        yield Finding(
            (*EXTRA, "kube_proxy_remove"),
            f"{'.'.join(EXTRA)}.kube_proxy_remove: {plugin} does not route to services without kube-proxy: remove it, "
            "or set calico_bpf_enabled",
        )
    ports = str(variables.get("kube_apiserver_node_port_range", "30000-32767"))
    first, _, last = ports.partition("-")
    is_range = first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= _MAX_PORT
    if not is_range and "{{" not in ports:
        yield Finding(
            (*EXTRA, "kube_apiserver_node_port_range"),
            f"{'.'.join(EXTRA)}.kube_apiserver_node_port_range: {ports} is no range of ports: write 30000-32767",
        )


def _looping(site: Site) -> Iterator[Finding]:
    """Yield upstream DNS servers on a node or in the cluster itself: CoreDNS would ask itself, and ends with `Loop
    detected`.
    """
    own = of_cluster(site).values()
    for index, text in enumerate(site.get("kubernetes", "upstream_dns", default=[])):
        if addresses.is_loopback(text) or any(is_in(text, network) for network in own):
            yield Finding(
                ("kubernetes", "upstream_dns", index),
                f"kubernetes.upstream_dns: the cluster's DNS asks {text}, which is in a pod the cluster itself: name a "
                "DNS server of the site",
            )


def _of_kubespray(site: Site) -> Iterator[tuple[Place, str, str]]:
    """Yield the entry, the name, and the address of each variable of kubespray that holds a virtual address."""
    for name in upstream.names()["addresses"]:
        value = extra(site).get(name)
        place: Place = (*EXTRA, name)
        if isinstance(value, dict) and "address" in value:
            place, value = (*place, "address"), value["address"]
        if isinstance(value, str) and "{{" not in value:
            yield place, ".".join(map(str, place)), value


def _virtual(site: Site) -> Iterator[Finding]:
    """Yield virtual addresses that are no IPv4 address, or that a machine of the site already has."""
    owners = {text: owner for _, owner, text in addresses.fixed(site)}
    for place, name, text in _of_kubespray(site):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            yield Finding(place, f"{name}: {text} is no IPv4 address: correct it")
            continue
        if text in owners and "kube_vip_address" in place:
            yield Finding(place, f"{name}: {owners[text]} has {text} already: name a free address")


def _number(named: Mapping[Any, Any], name: str, default: int) -> int:
    value = named.get(name, default)
    return int(value) if str(value).isdecimal() else default


def _exported(site: Site) -> Iterator[Finding]:
    """Yield exports to networks of pods or services. Hosts mount the volumes, and have no address in these networks."""
    known = [host.get(key, "") for host in site.hosts.values() for key in ("address", "node_address")]
    lifs = lif_networks(site)
    for place, export in exports(site):
        serves = any(is_in(text, export) for text in known) or any(map(export.overlaps, lifs))
        shared = [
            f"{members} ({network})"
            for members, network in of_cluster(site).items()
            if export.overlaps(network)
        ]
        if shared and not serves:
            yield Finding(
                place,
                f"{'.'.join(map(str, place))}: {export} shares addresses with the {' and the '.join(shared)}, and "
                "hosts mount, not pods: name the network by which the hosts reach the storage",
            )


def exports(site: Site) -> Iterator[tuple[Place, _Network]]:
    """Yield each network that may mount the exports of the storage, with its entry.

    Host names and netgroups are left out.
    """
    ontap = site.get("storage", "ontap", default={})
    named: list[tuple[Place, str]] = [
        (("storage", "ontap", "export_cidrs", index), text)
        for index, text in enumerate(ontap.get("export_cidrs", []))
    ]
    named += [
        (("storage", "ontap", "export_rules", index, "clients", number), text)
        for index, rule in enumerate(ontap.get("export_rules", []))
        for number, text in enumerate(rule["clients"])
    ]
    for place, text in named:
        try:
            yield place, ipaddress.ip_network(text, strict=False)
        except ValueError:
            continue


def lif_networks(site: Site) -> list[_Network]:
    """Return the networks of the data interfaces, by their masks."""
    networks: list[_Network] = []
    for lif in site.get("storage", "ontap", "data_lifs", default=[]):
        try:
            networks.append(ipaddress.ip_network(f"{lif['address']}/{lif['netmask']}", strict=False))
        except ValueError:
            continue  # a name
    return networks


def is_in(text: str, network: _Network) -> bool:
    """Return whether a text is an address in a network; false for a name."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address in network
