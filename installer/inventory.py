"""The Ansible inventory of a site: hosts in groups, and the variables of the roles."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from installer import variables
from installer.site import Site

CONTROLLER: Final = "controller"
"""The machine that muster runs on, as a host of the inventory; the cluster's API is spoken to from here."""

_GROUPS: Final = ("control_plane", "etcd", "gpu", "worker")


def build(site: Site) -> dict[str, Any]:
    """The inventory as Ansible's YAML plugin reads it. No secret is in it, only where to find each."""
    switches = site.get("network", "switches", default={})
    return {
        "all": {
            "vars": {
                "muster_site": site.name,
                "muster_version": version("muster"),
                "muster_kubeconfig": str(kubeconfig(site)),
                "muster_context": site.get("kubernetes", "context", default=""),
                "muster_cache": str(cache(site)),
                **variables.of_roles(site),
                **site.get("vars", default={}),
            },
            "hosts": {
                CONTROLLER: {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
                **{name: _host(site, name) for name in site.hosts},
                **{name: variables.of_switch(site, name) for name in switches},
            },
            "children": {
                "cluster": {"hosts": {name: {} for name in site.hosts}},
                "switches": {"hosts": {name: {} for name in switches}},
                **{
                    group: {
                        "hosts": {name: {} for name, host in site.hosts.items() if group in host["roles"]}
                    }
                    for group in _GROUPS
                },
            },
        }
    }


def groups(inventory: dict[str, Any]) -> dict[str, list[str]]:
    """Every group and the hosts in it; a host is a group of its own, as in a play's `hosts`."""
    top = inventory["all"]
    return {
        **{name: [name] for name in top["hosts"]},
        **{name: list(group["hosts"]) for name, group in top["children"].items()},
        "controller:cluster": [CONTROLLER, *top["children"]["cluster"]["hosts"]],
        "all": list(top["hosts"]),
    }


def stage_variables(inventory: dict[str, Any], stage: str) -> dict[str, Any]:
    """What decides on the work of a stage: the variables of its role, on all hosts and on each."""
    top = inventory["all"]
    mine = {name: value for name, value in top["vars"].items() if name.startswith(f"{stage}_")}
    mine["muster_version"] = top["vars"]["muster_version"]
    mine["muster_kubeconfig"] = top["vars"]["muster_kubeconfig"]
    for host, values in top["hosts"].items():
        mine[f"host {host}"] = {name: value for name, value in values.items() if name.startswith(f"{stage}_")}
        mine[f"host {host}"]["address"] = values.get("ansible_host", "")
    mine["groups"] = {name: sorted(group["hosts"]) for name, group in top["children"].items()}
    return mine


def kubeconfig(site: Site) -> Path:
    """The access to the cluster: of the site file, of the environment, or what DeepOps leaves in its checkout."""
    given = site.get("kubernetes", "kubeconfig")
    if given:
        return (site.directory / Path(given).expanduser()).absolute()
    if os.environ.get("KUBECONFIG"):
        return Path(os.environ["KUBECONFIG"]).expanduser().absolute()
    release = site.versions.get("deepops", "none")
    return cache(site) / f"deepops-{release}" / "config" / "artifacts" / "admin.conf"


def cache(site: Site) -> Path:
    """The directory for checkouts, archives and virtual environments on the controller."""
    given = site.get("controller", "cache")
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "muster" / "installer"


def _host(site: Site, name: str) -> dict[str, Any]:
    host = site.hosts[name]
    connection = host.get("connection", "ssh")
    become = site.get("access", "become", default=True) and connection != "community.docker.nsenter"
    values: dict[str, Any] = {
        "ansible_connection": connection,
        "ansible_become": become,
        **variables.of_host(host),
        **host.get("connection_vars", {}),
    }
    if connection == "ssh":
        values["ansible_host"] = host["address"]
        values["ansible_port"] = host.get("port", site.get("access", "port", default=22))
        user = host.get("user", site.get("access", "user"))
        key = site.get("access", "key_file")
        known = site.get("access", "known_hosts")
        values |= {"ansible_user": user} if user else {}
        values |= {"ansible_ssh_private_key_file": str(Path(key).expanduser())} if key else {}
        values |= (
            {"ansible_ssh_common_args": f"-o UserKnownHostsFile={Path(known).expanduser()}"} if known else {}
        )
    return values
