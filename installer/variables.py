"""What the site file says, as variables of the roles; one function for each role, nothing else sets them.

A variable begins with the name of its role. What is left out here has its default in the role.
A secret is a template that Ansible resolves when a task needs it; its value is never in the inventory.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from installer import matrix
from installer.site import Site

Variables = dict[str, Any]

MUSTER: Final = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from orchestrator.cli.main import main; sys.exit(main())",
]
"""The words that run this very muster, whatever PATH says."""


def of_roles(site: Site) -> Variables:
    """The variables of all roles for a site."""
    values: Variables = {}
    for function in _ROLES:
        values |= {name: value for name, value in function(site).items() if value is not None}
    return values


def of_host(host: dict[str, Any]) -> Variables:
    """The variables of one host."""
    values = {
        "preflight_os": host["os"],
        "preflight_model": host.get("model"),
        "driver_model": host.get("model"),
    }
    values["driver_os"] = host["os"]
    return {name: value for name, value in values.items() if value is not None}


def secret(reference: dict[str, str] | None) -> str | None:
    """The template that gives a secret when it is needed: from the environment, or a variable of vault.yml."""
    if reference is None:
        return None
    if "env" in reference:
        return f"{{{{ lookup('ansible.builtin.env', '{reference['env']}') }}}}"
    return f"{{{{ {reference['vault']} }}}}"


def _preflight(site: Site) -> Variables:
    deepops_comes = "deepops" not in site.declared_not_applicable and "deepops" in site.versions
    lifs = site.get("storage", "ontap", "data_lifs", default=[])
    return {
        "preflight_mtu": site.get("network", "mtu"),
        "preflight_kubernetes": None if deepops_comes else site.versions["kubernetes"],
        "preflight_storage_addresses": [each["address"] for each in lifs],
    }


def _orchestrator(site: Site) -> Variables:
    return {
        "orchestrator_cluster": site.name,
        "orchestrator_image": site.get("orchestrator", "image"),
        "orchestrator_replicas": site.get("orchestrator", "replicas"),
        "orchestrator_muster": MUSTER,
    }


def _dra(site: Site) -> Variables:
    release, _ = matrix.dra_release(site)
    return {"dra_version": release}


def _deepops(site: Site) -> Variables:
    return {
        "deepops_release": site.versions.get("deepops"),
        "deepops_commit": site.get("deepops", "commit"),
        "deepops_repository": site.get("deepops", "repository"),
        "deepops_kubernetes": site.versions["kubernetes"],
        "deepops_runtime": site.get("kubernetes", "container_runtime"),
        "deepops_network_plugin": site.get("kubernetes", "network_plugin"),
        "deepops_pod_subnet": site.get("kubernetes", "pod_subnet"),
        "deepops_service_subnet": site.get("kubernetes", "service_subnet"),
    }


def _trident(site: Site) -> Variables:
    release = site.versions.get("trident")
    if release is None:
        return {}
    row = matrix.trident_row(release) or {}
    ontap = site.get("storage", "ontap", default={})
    return {
        "trident_version": release,
        "trident_kind": row.get("custom_resource"),
        "trident_backends": site.get("storage", "backends"),
        "trident_classes": site.get("storage", "classes"),
        "trident_management_lif": ontap.get("management_lif"),
        "trident_management_port": ontap.get("https_port"),
        "trident_svm": ontap.get("svm"),
        "trident_export_cidrs": ontap.get("export_cidrs"),
        "trident_username": ontap.get("trident_username"),
        "trident_password": secret(ontap.get("trident_password")),
    }


def _verify(site: Site) -> Variables:
    return {
        "verify_nodes": sorted(site.hosts),
        "verify_storage": "trident" not in site.declared_not_applicable and "trident" in site.versions,
    }


_ROLES: Final[tuple[Callable[[Site], Variables], ...]] = (
    _preflight,
    _deepops,
    _trident,
    _dra,
    _orchestrator,
    _verify,
)
