"""The stage ontap: the storage system prepared for Trident."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from deployment import matrix
from deployment.content import role_defaults
from deployment.site import Finding, Place, Site
from deployment.stages import networks, storage_policies
from deployment.stages.definition import StageDefinition, Variables
from deployment.stages.secrets import secret, secrets
from deployment.stages.steps import Step, component_steps
from deployment.stages.words import count
from deployment.variable_checks import FALSE

_NEEDED_ENTRIES: Final = {
    "aggregates": "the SVM needs aggregates for its volumes",
    "data_lifs": "without an interface no node can mount",
    "svm_management_lif": "the account of Trident lives in the SVM, and the cluster's management LIF does not know it",
    "trident_password": "the account of Trident gets it",
}

_NO_WAY_BACK: Final = "ONTAP does not go back to an older release with its data"
_NFS: Final = {"3": "ontap_nfs_v3", "4.1": "ontap_nfs_v41"}
"""The variable of the role for a version of NFS."""

_MTU_OF_JUMBO_FRAMES: Final = 9000
_MAX_PREFIX: Final = 32


class Ontap(StageDefinition):
    """The stage that prepares an SVM with interfaces, exports and an account for Trident, over REST."""

    name: ClassVar[str] = "ontap"
    needs: ClassVar[tuple[str, ...]] = ("storage", "ontap")

    def problems(self, site: Site) -> Iterator[Finding]:
        yield from _unmade_ports(site)
        if not self.is_in(site):
            return
        ontap = site.get("storage", "ontap")
        for key, why in _NEEDED_ENTRIES.items():
            if key not in ontap:
                yield Finding(
                    ("storage", "ontap"),
                    f"storage.ontap: `{key}` is missing: {why}; where the SVM is prepared by hand, declare ontap under "
                    "not_applicable",
                )
        lifs = [
            *ontap.get("data_lifs", []),
            *([ontap["svm_management_lif"]] if "svm_management_lif" in ontap else []),
        ]
        for field in ("name", "address"):
            values = [lif[field] for lif in lifs]
            for value in sorted({item for item in values if values.count(item) > 1}):
                yield Finding(("storage", "ontap"), f"storage.ontap: two interfaces have the {field} {value}")
        yield from _lif_problems(ontap)
        yield from _route_problems(ontap)
        yield from _doubled_ports(ontap)
        yield from storage_policies.problems(ontap)
        yield from storage_policies.without_answer(ontap)
        protocols = ontap.get("trident_protocols", ["nfs"])
        if "nfs" not in protocols and any(
            "nas" in each["driver"] for each in site.get("storage", "backends", default=[])
        ):
            yield Finding(
                ("storage", "ontap", "trident_protocols"),
                "storage.ontap.trident_protocols: a backend serves over NFS, and the account of Trident may not "
                "manage it: add nfs",
            )

    def matrix_findings(self, site: Site) -> Iterator[Finding]:
        release, row = site.versions.get("ontap"), matrix.tables()["ontap"][0]
        if release and self.is_in(site) and not matrix.within(release, row["release"]):
            yield Finding(
                ("versions", "ontap"),
                f"the stage ontap needs ONTAP {row['release']}, this is {release} ({row['source']}): upgrade it, or "
                "prepare the SVM by hand and declare ontap under not_applicable",
            )

    def notes(self, site: Site) -> Iterator[str]:
        yield from [*_hosts_without_export(site)] or site.lines(_unanswered(site))
        yield from site.lines(self._unchecked_certificate(site))
        yield from site.lines(storage_policies.open_exports(site))
        yield from site.lines(storage_policies.unmade(site))
        mtu = site.get("network", "mtu", default=0)
        if mtu > _MTU_OF_JUMBO_FRAMES:
            yield (
                f"network.mtu {mtu} goes to the broadcast domain of ONTAP, and preflight compares every host with it. "
                f"Each port, VLAN and switch between them must carry it; the usual value is {_MTU_OF_JUMBO_FRAMES}"
            )

    def variables(self, site: Site) -> Variables:
        ontap = site.get("storage", "ontap")
        if ontap is None:
            return {}
        data = ontap.get("data_lifs", [])
        management = ontap.get("svm_management_lif")
        nfs = nfs_versions(site)
        rules = ontap.get("export_rules")
        if rules is None and "export_cidrs" in ontap:
            rules = [{"clients": ontap["export_cidrs"]}]
        return {
            **_access(ontap),
            "ontap_required_licenses": ontap.get("licenses"),
            "ontap_license_codes": secrets(ontap.get("license_codes")),
            "ontap_ipspace": ontap.get("ipspace"),
            "ontap_interface_groups": ontap.get("interface_groups"),
            "ontap_vlans": ontap.get("vlans"),
            "ontap_broadcast_domain": ontap.get("broadcast_domain"),
            "ontap_broadcast_ports": _ports(data) if "broadcast_domain" in ontap else None,
            "ontap_mtu": site.get("network", "mtu"),
            "ontap_svm": ontap["svm"],
            "ontap_aggregates": ontap.get("aggregates"),
            **{variable: version in nfs for version, variable in _NFS.items()},
            "ontap_lifs": [
                *data,
                *([{**management, "service_policy": "default-management"}] if management else []),
            ],
            "ontap_routes": ontap.get("routes"),
            "ontap_dns_domains": ontap.get("dns", {}).get("domains"),
            "ontap_dns_servers": ontap.get("dns", {}).get("servers"),
            "ontap_export_policy": ontap.get("export_policy"),
            "ontap_export_rules": rules,
            "ontap_qos_policies": ontap.get("qos_policies"),
            "ontap_snapshot_policies": ontap.get("snapshot_policies"),
            "ontap_trident_user": ontap.get("trident_username"),
            "ontap_trident_password": secret(ontap.get("trident_password")),
            "ontap_trident_role": ontap.get("trident_role"),
            "ontap_trident_protocols": ontap.get("trident_protocols"),
        }

    def _unchecked_certificate(self, site: Site) -> Iterator[Finding]:
        """Yield the setting by which muster accepts any certificate of ONTAP."""
        variable = "ontap_validate_certs"
        if str(self.value(site, variable)).lower() in FALSE:
            ontap, in_vars = site.get("storage", "ontap"), site.get("vars", variable) is not None
            yield Finding(
                ("vars", variable) if in_vars else ("storage", "ontap", "validate_certs"),
                f"any machine that answers at {ontap['management_lif']} gets the password of {ontap['username']}, "
                "because its certificate is not checked: remove the entry, and set storage.ontap.ca_file",
            )

    def sentence(self, site: Site) -> str:
        ontap = site.get("storage", "ontap")
        exports = ontap.get("export_cidrs", [])
        return (
            f"on {ontap['management_lif']}: SVM {ontap['svm']} on "
            f"{count(len(ontap.get('aggregates', [])), 'aggregate')}, "
            f"{count(len(ontap.get('data_lifs', [])), 'interface')} for NFS {' and '.join(nfs_versions(site))} with "
            f"MTU {self.value(site, 'ontap_mtu')}, exports to {', '.join(exports) or 'no network'}, "
            f"account {self.value(site, 'ontap_trident_user')} for Trident. Then every host must reach the interfaces"
        )

    def removal_sentence(self, site: Site) -> str:
        svm = site.get("storage", "ontap", "svm")
        if not self.value(site, "ontap_uninstall_svm"):
            return f"the account of Trident is deleted; SVM {svm} and its volumes are kept"
        if not self.value(site, "ontap_uninstall_data"):
            return f"SVM {svm} is deleted if it has no volumes; else this is refused"
        return f"SVM {svm} IS DELETED WITH ALL ITS VOLUMES, as ontap_uninstall_data says"

    def steps(self, site: Site, installed: Mapping[str, str]) -> Iterator[Step]:
        before, after = installed.get(self.name, ""), site.versions.get("ontap", "")
        yield from component_steps(self.name, "ONTAP", before, after, no_way_back=_NO_WAY_BACK, minor=3)


def nfs_versions(site: Site) -> list[str]:
    """Return the versions of NFS that the SVM serves."""
    default = [version for version, variable in _NFS.items() if role_defaults("ontap")[variable]]
    return list(site.get("storage", "ontap", "nfs_versions", default=default))


def _hosts_without_export(site: Site) -> Iterator[str]:
    """Yield a note on hosts that are in no export, unless an export overlaps the network of the data interfaces."""
    exported = [network for _, network in networks.exports(site)]
    lifs = networks.lif_networks(site)
    if not exported or any(one.overlaps(two) for one in exported for two in lifs):
        return
    outside = [
        name
        for name, host in site.hosts.items()
        if not any(
            networks.is_in(host.get(key, ""), network)
            for network in exported
            for key in ("address", "node_address")
        )
    ]
    if outside:
        yield (
            f"the exports ({', '.join(map(str, exported))}) hold neither {', '.join(outside)} nor the network of an "
            "interface: a host can mount only if it has another address there; correct storage.ontap.export_cidrs"
        )


def _unanswered(site: Site) -> Iterator[Finding]:
    """Yield exports to networks without an interface of the SVM and without a route, so that no answer arrives."""
    ontap = site.get("storage", "ontap")
    svm_networks = _svm_networks(ontap)
    routes = [ipaddress.ip_network(route["destination"]) for route in ontap.get("routes", [])]
    for place, export in networks.exports(site):
        if svm_networks and not any(map(export.overlaps, (*svm_networks, *routes))):
            yield Finding(
                place,
                f"{'.'.join(map(str, place))}: the SVM has no interface and no route to {export} (interfaces in "
                f"{', '.join(map(str, svm_networks))}), so no answer arrives: add a route to storage.ontap.routes",
            )


def _access(ontap: dict[str, Any]) -> Variables:
    return {
        "ontap_hostname": ontap["management_lif"],
        "ontap_port": ontap.get("https_port"),
        "ontap_username": ontap["username"],
        "ontap_password": secret(ontap["password"]),
        "ontap_validate_certs": ontap.get("validate_certs"),
        "ontap_ca_path": ontap.get("ca_file"),
    }


def _lif_problems(ontap: dict[str, Any]) -> Iterator[Finding]:
    """Yield interfaces at a name, or at an address that its network does not give to an interface."""
    lifs: list[tuple[Place, dict[str, Any]]] = [
        (("data_lifs", index), lif) for index, lif in enumerate(ontap.get("data_lifs", []))
    ]
    lifs += [(("svm_management_lif",), lif) for lif in [ontap.get("svm_management_lif")] if lif]
    lif_networks: list[tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network]] = []
    for place, lif in lifs:
        where: Place = ("storage", "ontap", *place, "address")
        try:
            interface = ipaddress.ip_interface(f"{lif['address']}/{lif['netmask']}")
        except ValueError:
            if ":" not in lif["address"] and not set(lif["address"]) <= set("0123456789."):
                yield Finding(
                    where,
                    f"{lif['name']}: ONTAP gives an interface an address, not a name: write the address",
                )
            continue
        network = interface.network
        if network.version == 4 and network.prefixlen in {0, _MAX_PREFIX}:
            yield Finding(
                (*where[:-1], "netmask"),
                f"{lif['name']}: with the netmask {lif['netmask']} no host is in the network of {interface.ip}: write "
                "the mask of that network",
            )
            continue
        ends = {network.network_address, network.broadcast_address}
        if network.version == 4 and network.prefixlen < _MAX_PREFIX - 1 and interface.ip in ends:
            yield Finding(
                where,
                f"{lif['name']}: {interface.ip} is the first or the last of {network}: take another one",
            )
        overlapping = next(
            (one for one in lif_networks if one[1] != network and one[1].overlaps(network)), None
        )
        if overlapping:
            yield Finding(
                (*where[:-1], "netmask"),
                f"{lif['name']} is in {network}, and {overlapping[0]} in {overlapping[1]}, which overlap: correct a "
                "netmask",
            )
        lif_networks.append((lif["name"], network))


def _route_problems(ontap: dict[str, Any]) -> Iterator[Finding]:
    """Yield routes whose gateway is of another family or an interface of the SVM, and two routes to one destination."""
    own = {
        lif["address"]
        for lif in [*ontap.get("data_lifs", []), ontap.get("svm_management_lif") or {"address": ""}]
    }
    svm_networks = _svm_networks(ontap)
    destinations: set[str] = set()
    for index, route in enumerate(ontap.get("routes", [])):
        place: Place = ("storage", "ontap", "routes", index)
        to, gateway = route["destination"], route["gateway"]
        if (":" in to) != (":" in gateway):
            yield Finding(
                place, f"the route to {to} has the gateway {gateway}, of another family: correct one of them"
            )
        if gateway in own:
            yield Finding(place, f"the gateway {gateway} of {to} is an interface of the SVM: name the router")
        elif (
            svm_networks
            and gateway[:1].isdigit()
            and not any(networks.is_in(gateway, each) for each in svm_networks)
        ):
            yield Finding(
                place,
                f"the gateway {gateway} of {to} is in the network of no interface of the SVM "
                f"({', '.join(map(str, svm_networks))}): correct one of them",
            )
        if to in destinations:
            yield Finding(place, f"there are two routes to {to}: remove one")
        destinations.add(to)


def _svm_networks(ontap: dict[str, Any]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the networks of the interfaces of the SVM; empty if the site file does not have all of them."""
    lifs = [*ontap.get("data_lifs", []), ontap.get("svm_management_lif")]
    try:
        return [ipaddress.ip_network(f"{lif['address']}/{lif['netmask']}", strict=False) for lif in lifs]
    except (ValueError, TypeError):
        return []


def _doubled_ports(ontap: dict[str, Any]) -> Iterator[Finding]:
    """Yield ports in two interface groups, ports of a group that carry an interface or a VLAN, and VLANs that are there
    twice.
    """
    grouped: set[tuple[str, str]] = set()
    for index, group in enumerate(ontap.get("interface_groups", [])):
        ports = {(group["node"], port) for port in group["ports"]}
        for node, port in sorted(ports & grouped):
            yield Finding(
                ("storage", "ontap", "interface_groups", index),
                f"{port} of {node} is in two interface groups: remove one",
            )
        grouped |= ports
    for index, lif in enumerate(ontap.get("data_lifs", [])):
        if (lif["home_node"], lif["home_port"]) in grouped:
            yield Finding(
                ("storage", "ontap", "data_lifs", index),
                f"{lif['name']} is to be on {lif['home_port']}, a port of an interface group: name the group, as a0a",
            )
    vlans: set[tuple[str, str, int]] = set()
    for index, vlan in enumerate(ontap.get("vlans", [])):
        place: Place = ("storage", "ontap", "vlans", index)
        if (vlan["node"], vlan["parent"], vlan["id"]) in vlans:
            yield Finding(place, f"VLAN {vlan['id']} of {vlan['parent']} is there twice: remove one")
        if (vlan["node"], vlan["parent"]) in grouped:
            yield Finding(place, f"{vlan['parent']} is a port of an interface group: name the group, as a0a")
        vlans.add((vlan["node"], vlan["parent"], vlan["id"]))


def _ports(lifs: list[dict[str, Any]]) -> list[str]:
    return sorted({f"{lif['home_node']}:{lif['home_port']}" for lif in lifs})


def _unmade_ports(site: Site) -> Iterator[Finding]:
    """Yield home ports on a VLAN, and VLANs on an interface group, that the file uses and does not define."""
    ontap = site.get("storage", "ontap", default={})
    vlans = {(vlan["node"], f"{vlan['parent']}-{vlan['id']}") for vlan in ontap.get("vlans", [])}
    nodes = {group["node"] for group in ontap.get("interface_groups", [])}
    for index, interface in enumerate(ontap.get("data_lifs", [])):
        port = interface["home_port"]
        if vlans and re.search(r"-\d+$", port) and (interface["home_node"], port) not in vlans:
            yield Finding(
                ("storage", "ontap", "data_lifs", index),
                f"{interface['name']} is to be on {port} of {interface['home_node']}, and storage.ontap.vlans makes no "
                "such port: add the VLAN there, or correct home_port",
            )
    for index, vlan in enumerate(ontap.get("vlans", [])):
        if nodes and re.fullmatch(r"a\d+[a-z]", vlan["parent"]) and vlan["node"] not in nodes:
            yield Finding(
                ("storage", "ontap", "vlans", index),
                f"VLAN {vlan['id']} is to be on {vlan['parent']} of {vlan['node']}, and storage.ontap.interface_groups "
                "has none for this node: add it there",
            )


STAGE: Final = Ontap()
