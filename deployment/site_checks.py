"""Checks the hosts of a site file: conflicts between names, addresses, roles and marks of maintenance."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from deployment import addresses, upstream
from deployment.site import Finding, Place, Site

CONTROLLER: Final = "controller"
"""The machine that muster runs on, as a host of the inventory. Tasks on the cluster's API run on it."""

GROUPS: Final = ("control_plane", "etcd", "gpu", "worker")
"""The roles of hosts, each a group of the inventory."""

_OWN_NAMES: Final = frozenset({CONTROLLER, *GROUPS, "cluster", "switches", "muster_gpu", "ungrouped"})
_NUMBER: Final = re.compile(r"[0-9]+(e[0-9]+)?|0[box][0-9a-f]+")
"""Names that a program takes for a number: a resolver reads 42 as the address 0.0.0.42."""


def problems(site: Site) -> Iterator[Finding]:
    """Yield hosts that share an address. Also yield roles and marks of maintenance that would break any cluster."""
    yield from _reserved_names(site)
    owners: dict[str, str] = {}
    for name, host in site.hosts.items():
        other = owners.setdefault(f"{_spelt(host['address'])}:{host.get('port', 22)}", name)
        if other != name and host.get("connection", "ssh") == "ssh":
            yield Finding(("hosts", name, "address"), f"{name} has the address of {other}")
        label = _spelt(host["address"]).partition(".")[0]
        if label in site.hosts and label != name:
            yield Finding(
                ("hosts", name, "address"),
                f"{name} has the address {host['address']}, the name of another host: write its own address",
            )
        if addresses.is_loopback(host["address"]) and _is_this_machine(site, host):
            yield Finding(
                ("hosts", name, "address"),
                f"{name} has {host['address']}, which is the machine that muster runs on. Name the address by which "
                "the other hosts reach it, or set connection: local if it is this machine",
            )
    yield from _without_root(site)
    yield from _doubled(site)
    yield from _node_addresses(site)
    yield from _maintenance(site)
    members = [name for name, host in site.hosts.items() if "etcd" in host["roles"]]
    if members and len(members) % 2 == 0:
        yield Finding(
            ("hosts", members[-1], "roles"),
            f"etcd has {len(members)} members: an even number survives no more failures than one less. "
            "Take the role from one host or give it to one more",
        )


def _spelt(address: str) -> str:
    """Return an address or a DNS name in the form that two spellings of it share."""
    return address.lower().rstrip(".")


def _is_this_machine(site: Site, host: dict[str, Any]) -> bool:
    """Return whether SSH to a loopback address reaches this machine.

    With a port or a jump host, SSH reaches another machine.
    """
    jump = host.get("jump", site.get("access", "jump"))
    port = host.get("port", site.get("access", "port", default=22))
    return host.get("connection", "ssh") == "ssh" and port == 22 and jump in {None, "none"}


def _without_root(site: Site) -> Iterator[Finding]:
    """Yield hosts on which no task would be root: another user without sudo."""
    if site.get("access", "become", default=True):
        return
    for name, host in site.hosts.items():
        user = host.get("user", site.get("access", "user"))
        own = "ansible_become" in host.get("connection_vars", {})
        if host.get("connection", "ssh") == "ssh" and user not in {None, "root"} and not own:
            yield Finding(
                ("access", "become"),
                f"access.become is false, and {name} is reached as {user}: the stages need root. Remove become, or set "
                "user: root",
            )
            return


def _reserved_names(site: Site) -> Iterator[Finding]:
    """Yield hosts and switches with the name of a group, of muster's controller, or of each other."""
    groups = {
        name.replace("_", "-")
        for name in (*_OWN_NAMES, *upstream.names()["groups"], *addresses.OF_THIS_MACHINE)
    }
    switches = site.get("network", "switches", default={})
    named: list[tuple[Place, str]] = [(("hosts", name), name) for name in site.hosts]
    named += [(("network", "switches", name), name) for name in switches]
    for place, name in named:
        if name in groups:
            yield Finding(
                place,
                f"{name} is a reserved name: a group or a host of Ansible, kubespray, DeepOps or muster has it. "
                "Give it another name",
            )
        elif _NUMBER.fullmatch(name) or not isinstance(yaml.safe_load(name), str):
            yield Finding(
                place,
                f"{name} is a number, a date or a truth for YAML or for the resolver of a host: give it a name with "
                "other letters",
            )
    for name in switches:
        if name in site.hosts:
            yield Finding(("network", "switches", name), f"{name} is also the name of a host: rename one")


def _doubled(site: Site) -> Iterator[Finding]:
    """Yield addresses with two owners. Two hosts may share an SSH address: `problems` compares them with the ports."""
    owners: dict[str, tuple[Place, str]] = {}
    for place, owner, text in addresses.fixed(site):
        first, other = owners.setdefault(_spelt(text), (place, owner))
        hosts = first[0] == place[0] == "hosts"
        one_host, by_ssh = first[1] == place[1], first[2] == place[2] == "address"
        if first == place or addresses.is_loopback(text) or (hosts and (one_host or by_ssh)):
            continue
        yield Finding(place, f"{owner} has the address of {other}, {text}: correct one of them")


def _node_addresses(site: Site) -> Iterator[Finding]:
    """Yield each `node_address` that kubespray cannot use."""
    for name, host in site.hosts.items():
        text = host.get("node_address")
        if text is None:
            continue
        place: Place = ("hosts", name, "node_address")
        try:
            number = ipaddress.ip_address(text)
        except ValueError:
            number = None
        is_name = not set(text) <= set("0123456789.")
        if (number is None and is_name) or (
            number and (number.is_loopback or number.is_unspecified or number.is_multicast)
        ):
            yield Finding(
                place,
                f"hosts.{name}.node_address: {text} is no address of a node: write an IPv4 address of the host",
            )


def _maintenance(site: Site) -> Iterator[Finding]:
    """Yield marks that leave a cluster without a control plane, or etcd without most of its members."""
    for role in ("control_plane", "etcd"):
        members = [name for name, host in site.hosts.items() if role in host["roles"]]
        away = [name for name in members if "maintenance" in site.hosts[name]]
        enough = len(members) // 2 + 1 if role == "etcd" else 1
        if away and len(members) - len(away) < enough:
            yield Finding(
                ("hosts", away[-1], "maintenance"),
                f"{' and '.join(away)} in maintenance: {len(members) - len(away)} of {len(members)} hosts with the "
                f"role {role} would be left, and {enough} must be. "
                "Remove `maintenance`, or give another host the role",
            )
