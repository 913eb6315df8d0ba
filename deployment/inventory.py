"""The Ansible inventory of a site: hosts in groups, and the variables of the roles."""

import os
import sys
from pathlib import Path
from typing import Any

from deployment import proxy, ssh, variables
from deployment.site import Site
from deployment.site_checks import CONTROLLER, GROUPS
from deployment.stages import deepops, nexus
from orchestrator.directories import state_directory
from orchestrator.distribution import installed_version


def build(site: Site, state_dir: Path | None = None) -> dict[str, Any]:
    """Return the inventory as Ansible's YAML plugin reads it. It has no secrets, only references to them.

    Files that a run leaves on the controller are in the site's own directory below `state_dir`. No two sites share
    files.
    """
    directory = directory_of(site.name, state_dir)
    switches = site.get("network", "switches", default={})
    return {
        "all": {
            "vars": {
                "muster_site": site.name,
                "muster_version": installed_version(),
                "muster_directory": str(directory),
                "muster_kubeconfig": str(kubeconfig(site, directory)),
                "muster_context": site.get("kubernetes", "context", default=""),
                "muster_proxy": proxy.environment(site),
                **variables.of_roles(site),
                **site.get("vars", default={}),
            },
            "hosts": {
                CONTROLLER: {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
                **{name: _host(site, name) for name in site.hosts},
                **{name: nexus.switch_variables(site, name) for name in switches},
            },
            "children": {
                "cluster": {"hosts": {name: {} for name in site.hosts}},
                "switches": {"hosts": {name: {} for name in switches}},
                **{
                    group: {
                        "hosts": {name: {} for name, host in site.hosts.items() if group in host["roles"]}
                    }
                    for group in GROUPS
                },
            },
        }
    }


def groups(inventory: dict[str, Any]) -> dict[str, list[str]]:
    """Return every group and the hosts in it; a host is a group of its own, as in a play's `hosts`."""
    top = inventory["all"]
    return {
        **{name: [name] for name in top["hosts"]},
        **{name: list(group["hosts"]) for name, group in top["children"].items()},
        "controller:cluster": [CONTROLLER, *top["children"]["cluster"]["hosts"]],
        "all": list(top["hosts"]),
    }


def stage_variables(inventory: dict[str, Any], *roles: str) -> dict[str, Any]:
    """Return the inputs of a stage: the variables of its roles, on all hosts and on each."""
    top, prefixes = inventory["all"], tuple(f"{role}_" for role in roles)
    mine = {name: value for name, value in top["vars"].items() if name.startswith(prefixes)}
    mine["muster_version"] = top["vars"]["muster_version"]
    mine["muster_kubeconfig"] = top["vars"]["muster_kubeconfig"]
    for host, values in top["hosts"].items():
        mine[f"host {host}"] = {name: value for name, value in values.items() if name.startswith(prefixes)}
        mine[f"host {host}"]["address"] = values.get("ansible_host", "")
    mine["groups"] = {name: sorted(group["hosts"]) for name, group in top["children"].items()}
    return mine


def directory_of(site: str, state_dir: Path | None) -> Path:
    """Return the directory of a site: `state_dir`/SITE, by default `$XDG_STATE_HOME/muster/sites`/SITE."""
    base = state_dir.expanduser().absolute() if state_dir else state_directory() / "sites"
    return base / site


def kubeconfig(site: Site, directory: Path) -> Path:
    """Return the kubeconfig that the site file names.

    If it names none, return the kubeconfig that DeepOps writes. If the site installs no Kubernetes, return the
    kubeconfig of the environment.

    So a site that installs Kubernetes never uses another cluster that the environment names.
    """
    path = site.get("kubernetes", "kubeconfig")
    if path:
        return (site.directory / Path(path).expanduser()).absolute()
    if not deepops.STAGE.is_in(site) and os.environ.get("KUBECONFIG"):
        return Path(os.environ["KUBECONFIG"]).expanduser().absolute()
    return directory / "artifacts" / "admin.conf"


def _host(site: Site, name: str) -> dict[str, Any]:
    host = site.hosts[name]
    connection = host.get("connection", "ssh")
    become = site.get("access", "become", default=True) and connection != "community.docker.nsenter"
    values: dict[str, Any] = {
        "ansible_connection": connection,
        "ansible_become": become,
        **variables.of_host(host),
        **(ssh.connection(site, host) if connection == "ssh" else {}),
        **host.get("connection_vars", {}),
    }
    return values
