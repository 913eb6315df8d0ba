"""What the site file says, as variables of the roles; one function for each role, nothing else sets them.

A variable begins with the name of its role. What is left out here has its default in the role.
A secret is a template that Ansible resolves when a task needs it; its value is never in the inventory.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from deployment import matrix, proxy
from deployment.site import Site

Variables = dict[str, Any]

MUSTER: Final = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from orchestrator.cli.main import main; sys.exit(main())",
]
"""The words that run this very muster, whatever PATH says."""


ROCE: Final = {
    "cos": 3, "dscp": 26, "bandwidth_percent": 60, "ecn_minimum_kbytes": 150, "ecn_maximum_kbytes": 3000,
}  # fmt: skip
"""RoCE where the site file says no more than that it is wanted."""


def of_roles(site: Site) -> Variables:
    """The variables of all roles for a site."""
    values: Variables = {}
    for function in _ROLES:
        values |= {name: value for name, value in function(site).items() if value is not None}
    return values


def of_host(host: dict[str, Any]) -> Variables:
    """The variables of one host."""
    values = {"preflight_os": host["os"], "preflight_model": host.get("model")}
    if "gpu" in host["roles"]:
        values |= {
            "driver_os": host["os"],
            "driver_model": host.get("model"),
            "driver_gpus": matrix.gpus_of(host),
        }
    return {name: value for name, value in values.items() if value is not None}


def secret(reference: dict[str, str] | None) -> str | None:
    """The template that gives a secret when it is needed: from the environment, or a variable of vault.yml."""
    if reference is None:
        return None
    if "env" in reference:
        return f"{{{{ lookup('ansible.builtin.env', '{reference['env']}') }}}}"
    return f"{{{{ {reference['vault']} }}}}"


def secrets(reference: dict[str, str] | None) -> str | None:
    """The same for a list: a list in vault.yml, or a variable of the environment that is split by commas."""
    template = secret(reference)
    if reference is None or template is None or "vault" in reference:
        return template
    return template.removesuffix(" }}") + " | split(',') | map('trim') | select }}"


def _preflight(site: Site) -> Variables:
    lifs = site.get("storage", "ontap", "data_lifs", default=[])
    return {
        "preflight_mtu": site.get("network", "mtu"),
        "preflight_kubernetes": None if site.has_stage("deepops") else site.versions["kubernetes"],
        "preflight_storage_addresses": [lif["address"] for lif in lifs],
        "preflight_storage_comes": site.has_stage("ontap"),
        "preflight_container_runtime": site.container_runtime if site.has_stage("deepops") else None,
    }


def _nexus(site: Site) -> Variables:
    network = site.get("network", default={})
    switches = network.get("switches", {})
    roce = network.get("roce")
    return {
        "nexus_switches": [
            {"name": name, "address": switch["address"], "links": switch.get("links", [])}
            for name, switch in switches.items()
        ],
        "nexus_vlans": network.get("vlans"),
        "nexus_vpc": network.get("vpc"),
        "nexus_mtu": network.get("switch_mtu"),
        "nexus_roce": None if roce is None else ROCE | roce,
        "nexus_queues": {8: "8q", 4: ""}[network.get("queues", 8)],
    }


def of_switch(site: Site, name: str) -> Variables:
    """How a switch is reached, when its configuration is pushed."""
    switch = site.get("network", "switches")[name]
    values = {
        "ansible_connection": "ansible.netcommon.network_cli",
        "ansible_network_os": "cisco.nxos.nxos",
        "ansible_host": switch["address"],
        "ansible_user": switch.get("user", "admin"),
        "ansible_password": secret(switch.get("password")),
        "ansible_become": False,
    }
    return {key: value for key, value in values.items() if value is not None}


def _ontap(site: Site) -> Variables:
    ontap = site.get("storage", "ontap")
    if ontap is None:
        return {}
    data = ontap.get("data_lifs", [])
    management = ontap.get("svm_management_lif")
    nfs = site.nfs_versions
    rules = ontap.get("export_rules")
    if rules is None and "export_cidrs" in ontap:
        rules = [{"clients": ontap["export_cidrs"]}]
    return {
        **_ontap_access(ontap),
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
        "ontap_nfs_v3": "3" in nfs,
        "ontap_nfs_v41": "4.1" in nfs,
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


def _ontap_access(ontap: dict[str, Any]) -> Variables:
    return {
        "ontap_hostname": ontap["management_lif"],
        "ontap_port": ontap.get("https_port"),
        "ontap_username": ontap["username"],
        "ontap_password": secret(ontap["password"]),
        "ontap_validate_certs": ontap.get("validate_certs"),
        "ontap_ca_path": ontap.get("ca_file"),
    }


def _ports(lifs: list[dict[str, Any]]) -> list[str]:
    return sorted({f"{lif['home_node']}:{lif['home_port']}" for lif in lifs})


def _driver(site: Site) -> Variables:
    driver = site.get("driver", default={})
    return {
        "driver_branch": site.versions.get("driver"),
        "driver_dra": matrix.dra_comes(site),
        "driver_kernel_modules": driver.get("kernel_modules"),
        "driver_reboot": driver.get("reboot"),
        "driver_reboot_seconds": driver.get("reboot_seconds"),
        "driver_extra_packages": driver.get("extra_packages"),
        "driver_skip_packages": driver.get("skip_packages"),
    }


def _container_toolkit(site: Site) -> Variables:
    toolkit = site.get("container_toolkit", default={})
    return {
        "container_toolkit_version": site.versions.get("container_toolkit"),
        "container_toolkit_package_revision": toolkit.get("package_revision"),
        "container_toolkit_repository": toolkit.get("repository"),
        "container_toolkit_key_url": toolkit.get("key_url"),
        "container_toolkit_key_sha256": toolkit.get("key_sha256"),
        "container_toolkit_runtime": "containerd" if site.container_runtime == "containerd" else "none",
        "container_toolkit_cdi": toolkit.get("cdi"),
        "container_toolkit_envvar_when_unprivileged": matrix.devices_by_variable(site),
    }


def _docker(site: Site) -> Variables:
    docker = site.get("docker", default={})
    return {
        "docker_packages": docker.get("packages"),
        "docker_default_runtime": docker.get("default_runtime"),
        "docker_daemon": docker.get("daemon"),
    }


def _orchestrator(site: Site) -> Variables:
    return {
        "orchestrator_cluster": site.name,
        "orchestrator_image": site.get("orchestrator", "image"),
        "orchestrator_ingress_class": site.get("orchestrator", "ingress", "class"),
        "orchestrator_ingress_domain": site.get("orchestrator", "ingress", "domain"),
        "orchestrator_replicas": site.get("orchestrator", "replicas"),
        "orchestrator_muster": MUSTER,
    }


def _dra(site: Site) -> Variables:
    release, _ = matrix.dra_release(site)
    return {
        "dra_version": release,
        "dra_consumable_shares": "memory" if matrix.dra_shares(site) else "disabled",
    }


def _deepops(site: Site) -> Variables:
    deepops = site.get("deepops", default={})
    row = matrix.deepops_row(site.versions.get("deepops", "")) or {}
    gpus = any("gpu" in host["roles"] for host in site.hosts.values())
    operator = deepops.get("gpu_operator", False)
    through = proxy.environment(site)
    return {
        "deepops_release": site.versions.get("deepops"),
        "deepops_commit": deepops.get("commit", row.get("commit")),
        "deepops_repository": deepops.get("repository"),
        "deepops_python": deepops.get("python"),
        "deepops_python_releases": row.get("python"),
        "deepops_kubernetes": site.versions["kubernetes"],
        "deepops_runtime": site.container_runtime,
        "deepops_docker_version": site.versions.get("docker"),
        "deepops_nvidia_runtime": site.container_runtime == "containerd"
        and site.has_stage("container_toolkit"),
        "deepops_network_plugin": site.get("kubernetes", "network_plugin"),
        "deepops_pod_subnet": site.get("kubernetes", "pod_subnet"),
        "deepops_service_subnet": site.get("kubernetes", "service_subnet"),
        "deepops_batch": site.upgrade_batch,
        "deepops_drain_seconds": site.get("upgrade", "drain_seconds"),
        "deepops_http_proxy": through.get("http_proxy"),
        "deepops_https_proxy": through.get("https_proxy"),
        "deepops_no_proxy": through.get("no_proxy"),
        "deepops_gpu_operator_enabled": operator,
        "deepops_device_plugin": deepops.get(
            "device_plugin", gpus and not operator and not matrix.dra_comes(site)
        ),
    }


def _trident(site: Site) -> Variables:
    release = site.versions.get("trident")
    if release is None:
        return {}
    ontap = site.get("storage", "ontap", default={})
    digest = site.get("storage", "trident", "sha256")
    return {
        "trident_version": release,
        "trident_archive": site.get("storage", "trident", "archive"),
        "trident_checksum": digest and f"sha256:{digest}",
        "trident_backends": site.get("storage", "backends"),
        "trident_classes": site.get("storage", "classes"),
        "trident_management_lif": ontap.get("svm_management_lif", {}).get(
            "address", ontap.get("management_lif")
        ),
        "trident_management_port": ontap.get("https_port"),
        "trident_svm": ontap.get("svm"),
        "trident_export_cidrs": ontap.get("export_cidrs"),
        "trident_username": ontap.get("trident_username"),
        "trident_password": secret(ontap.get("trident_password")),
    }


def _drain(site: Site) -> Variables:
    return {"drain_seconds": site.get("upgrade", "drain_seconds")}


def _verify(site: Site) -> Variables:
    return {
        "verify_nodes": sorted(site.hosts),
        "verify_gpus_by_host": {
            name: gpus
            for name, host in sorted(site.hosts.items())
            if "gpu" in host["roles"] and (gpus := matrix.gpus_of(host)) is not None
        },
        "verify_devices": matrix.dra_comes(site),
        "verify_orchestrator": site.has_stage("orchestrator"),
        "verify_storage": site.has_stage("trident"),
        "verify_container_toolkit": site.has_stage("container_toolkit"),
    }


_ROLES: Final[tuple[Callable[[Site], Variables], ...]] = (
    _preflight,
    _nexus,
    _ontap,
    _driver,
    _container_toolkit,
    _docker,
    _deepops,
    _trident,
    _dra,
    _drain,
    _orchestrator,
    _verify,
)
