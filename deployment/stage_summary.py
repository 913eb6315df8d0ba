"""The summary of a stage: what it will do on a site, in one sentence, from the site file and the matrix alone."""

from collections.abc import Callable
from typing import Any, Final

from deployment import matrix
from deployment.effects import effects
from deployment.site import Site


def summarize(name: str, site: Site, *, removal: bool = False) -> str:
    """Return what the stage does on the site, or removes from it; empty where the title is enough."""
    describe = (_ON_TEARDOWN if removal else _ON_INSTALL).get(name)
    return describe(site) if describe else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _preflight(site: Site) -> str:
    what = (
        f"compare {_count(len(site.hosts), 'host')} with the site file: system, model, disk, memory"
        if site.hosts
        else ""
    )
    cluster = (
        "" if site.has_stage("deepops") else f"ask the cluster for Kubernetes {site.versions['kubernetes']}"
    )
    return "; ".join(filter(None, [what, cluster]))


def _nexus(site: Site) -> str:
    network = site.get("network", default={})
    pushed = site.get("vars", "nexus_push", default=False)
    vlans = ", ".join(str(vlan["id"]) for vlan in network.get("vlans", [])) or "none"
    mtu = network.get("switch_mtu", 9216)
    roce = ", RoCE without loss" if "roce" in network else ""
    sent = "show what differs and send it" if pushed else "nothing is sent to a switch"
    names = ", ".join(network["switches"])
    return f"render the configuration of {names} (VLANs {vlans}, MTU {mtu}{roce}) beside the journal; {sent}"


def _ontap(site: Site) -> str:
    ontap = site.get("storage", "ontap")
    nfs = " and ".join(site.nfs_versions)
    mtu = site.get("network", "mtu", default=9000)
    return (
        f"on {ontap['management_lif']}: SVM {ontap['svm']} on {_count(len(ontap.get('aggregates', [])), 'aggregate')}, "
        f"{_count(len(ontap.get('data_lifs', [])), 'interface')} for NFS {nfs} with MTU {mtu}, "
        f"exports to {', '.join(ontap.get('export_cidrs', [])) or 'nobody'}, "
        f"account {ontap.get('trident_username', 'trident')} for Trident; then every host must reach the interfaces"
    )


def _driver(site: Site) -> str:
    settings = site.get("driver", default={})
    reboot = "rebooted" if settings.get("reboot") else "named, and stops the run"
    modules = settings.get("kernel_modules", "auto")
    flavour = "the modules that fit the GPUs" if modules == "auto" else f"{modules} modules"
    return f"driver branch {site.versions['driver']} with {flavour}; a host that needs a reboot is {reboot}"


def _container_toolkit(site: Site) -> str:
    runtime = (
        "containerd is told of it" if site.container_runtime == "containerd" else "Docker is told of it next"
    )
    closed = (
        "EVERY CONTAINER OF A GPU HOST GETS THE GPUS THAT ITS OWN ENVIRONMENT NAMES"
        if matrix.devices_by_variable(site)
        else "no container gets GPUs by its own environment"
    )
    return f"the four packages at {site.versions['container_toolkit']}, pinned; {runtime}; {closed}"


def _docker(site: Site) -> str:
    runtime = site.get("docker", "default_runtime", default="nvidia")
    return (
        f"merge {runtime} as default runtime into daemon.json, check it, restart Docker once; "
        "install Docker only where there is none"
    )


def _deepops(site: Site) -> str:
    plugin = site.get("kubernetes", "network_plugin", default="calico")
    if site.get("deepops", "gpu_operator"):
        devices = "the GPU operator announces the GPUs"
    elif matrix.dra_comes(site):
        devices = "the stage dra announces the GPUs"
    else:
        devices = "feature discovery and the device plugin announce the GPUs"
    kubernetes = f"Kubernetes {site.versions['kubernetes']} with {site.container_runtime} and {plugin}"
    return (
        f"the kubespray of DeepOps {site.versions['deepops']}, in an environment of its own, installs {kubernetes} on "
        f"{_count(len(site.hosts), 'host')}; {devices}. ON EACH HOST: "
        f"{', '.join(effect.summary for effect in effects())}"
    )


def _trident(site: Site) -> str:
    classes = [
        f"{storage_class['name']}{' (default)' if storage_class.get('default') else ''}"
        for storage_class in site.get("storage", "classes", default=[])
    ]
    backends = [
        f"{backend['name']} ({backend['driver']})" for backend in site.get("storage", "backends", default=[])
    ]
    storage = f"backends {', '.join(backends) or 'none'}, classes {', '.join(classes) or 'none'}"
    return f"Trident {site.versions['trident']}, {storage}"


def _dra(site: Site) -> str:
    release, why = matrix.dra_release(site)
    return f"NVIDIA's DRA driver {release}, {why}; there is no way back to an older one"


def _orchestrator(site: Site) -> str:
    replicas = site.get("orchestrator", "replicas", default=2)
    image = site.get("orchestrator", "image")
    runs = (
        f"{_count(replicas, 'replica')}{f' of {image}' if image else ''}"
        if replicas
        else "no operator in the cluster"
    )
    domain = site.get("orchestrator", "ingress", "domain")
    hosts = f", projects' jobs at PROJECT.{domain}" if domain else ""
    return f"definitions, rights and settings of muster, {runs}{hosts}"


def _verify(site: Site) -> str:
    volume = ", exactly one default class, and it makes a volume" if site.has_stage("trident") else ""
    return f"every node is Ready, GPUs are announced{volume}"


def _hosts_on_teardown(site: Site) -> str:
    gone = site.get("vars", "teardown_hosts", default=False)
    return (
        "removed from the hosts, as teardown_hosts says" if gone else "kept; teardown_hosts would remove it"
    )


def _svm_on_teardown(site: Site) -> str:
    values: dict[str, Any] = site.get("vars", default={})
    svm = site.get("storage", "ontap", "svm")
    if not values.get("ontap_uninstall_svm"):
        return f"the account of Trident goes; SVM {svm} and its volumes are kept"
    if not values.get("ontap_uninstall_data"):
        return f"SVM {svm} is deleted if it has no volumes; else this is refused"
    return f"SVM {svm} IS DELETED WITH ALL ITS VOLUMES, as ontap_uninstall_data says"


def _nodes_on_teardown(site: Site) -> str:
    reset = site.get("vars", "deepops_reset_nodes", default=False)
    return (
        "KUBERNETES IS RESET ON EVERY HOST, as deepops_reset_nodes says"
        if reset
        else "Kubernetes stays on the hosts"
    )


_ON_INSTALL: Final[dict[str, Callable[[Site], str]]] = {
    "preflight": _preflight, "nexus": _nexus, "ontap": _ontap, "driver": _driver,
    "container_toolkit": _container_toolkit, "docker": _docker, "deepops": _deepops, "trident": _trident, "dra": _dra,
    "orchestrator": _orchestrator, "verify": _verify,
}  # fmt: skip
_ON_TEARDOWN: Final[dict[str, Callable[[Site], str]]] = {
    "nfs_client": _hosts_on_teardown,
    "driver": _hosts_on_teardown, "container_toolkit": _hosts_on_teardown, "docker": _hosts_on_teardown,
    "ontap": _svm_on_teardown, "deepops": _nodes_on_teardown,
}  # fmt: skip
