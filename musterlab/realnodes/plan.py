"""The parts of the real nodes of a lab: certificates, configuration files, and processes."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musterlab import pki, supervisor
from musterlab.gpus import stack
from musterlab.gpus.models import Gpus
from musterlab.ports import LOOPBACK
from musterlab.profiles import Profile
from musterlab.realnodes import cgroups, images, machine, network
from musterlab.realnodes.requirements import Tools

FOLDER = "realnodes"
NETWORK = "network"
PUBLISHED = "network.json"
API_CLIENT_USER = "muster-lab:kubelet-client"
"""The API server's identity for the kubelets."""

NAMES_USER = "muster-lab:names"
"""The name server's identity for the API server."""

_KUBELET_ACCESS = "kubernetes/kubeconfig"
_SOCKET_PATH_BYTES = 107
_PACKAGES = Path(__file__).parents[2]


@dataclass(frozen=True)
class RealNode:
    """One node: its number in the lab, and the profile with the GPUs and CPUs that it shows.

    With `gpus`, NVIDIA's programs announce the GPUs instead of the profile.
    """

    number: int
    profile: Profile
    gpus: Gpus | None = None

    @property
    def name(self) -> str:
        """Name of the Node object."""
        return f"{self.profile.prefix}-real-{self.number}"

    @property
    def address(self) -> str:
        """Address of the node. Its pods have the addresses 10.80.NUMBER.2 to 10.80.NUMBER.254."""
        return f"10.80.{self.number}.1"

    @property
    def cpus(self) -> int:
        """CPUs that the node shows."""
        return max(1, int(self.profile.capacity["cpu"].removesuffix("m")))


def nodes(profile: Profile, count: int, gpus: Gpus | None = None) -> tuple[RealNode, ...]:
    """Return the nodes `<prefix>-real-1`, `<prefix>-real-2`, ...; each has a range of addresses for its pods."""
    return tuple(RealNode(number, profile, gpus) for number in range(1, count + 1))


def gpu_configuration(directory: Path, name: str) -> Path:
    """Return the directory with the GPUs of a node, and their changes."""
    return directory / FOLDER / name / stack.CONFIGURATION_FOLDER


def accesses(directory: Path, node: RealNode) -> tuple[Path, Path]:
    """Paths of a node's kubeconfigs: for its kubelet, and for its DRA driver, which waits until the file exists."""
    etc = directory / FOLDER / node.name / "etc"
    return etc / _KUBELET_ACCESS, etc / stack.ACCESS


def egress_socket(directory: Path) -> Path:
    """Socket file through which the API server reaches the nodes."""
    return directory / FOLDER / "egress"


def published(directory: Path) -> Path:
    """File that the network's process creates when the network is ready."""
    return directory / FOLDER / PUBLISHED


def prepare(
    directory: Path,
    real: Sequence[RealNode],
    api_port: int,
    tools: Tools,
    image_archives: Sequence[Path] = (),
) -> None:
    """Write the files for the processes of the nodes. The certificates of the lab must exist.

    Raises:
        OSError: something cannot be written, or the path of the state directory is too long for a socket.
        ValueError: a file of `image_archives` is not an OCI archive.
    """
    folder = directory / FOLDER
    folder.mkdir(mode=0o700)
    if len(os.fsencode(egress_socket(directory))) > _SOCKET_PATH_BYTES:
        raise OSError(
            0, "too long for a socket file, give a shorter --state-dir", str(egress_socket(directory))
        )
    authority = pki.Authority.load(directory / "pki", "ca")
    authority.issue("kubelet-client", user=API_CLIENT_USER)
    authority.issue("names", user=NAMES_USER)
    _write(directory / FOLDER / "egress.yaml", _egress_selector(directory))
    images.build(folder / "images", tools.busybox, tools.applets, image_archives)
    specification = {
        "api_port": api_port,
        "node_addresses": [node.address for node in real],
        "egress_socket": str(egress_socket(directory)),
        "images": str(folder / "images"),
        "published": str(published(directory)),
        "credentials": [str(directory / "pki" / name) for name in ("ca.crt", "names.crt", "names.key")],
    }
    _write(folder / f"{NETWORK}-specification.json", specification)
    for node in real:
        _prepare_node(directory, node, authority, api_port, tools)


def cgroup_folders(directory: Path, real: Sequence[RealNode]) -> list[Path]:
    """Return the cgroup folders that the nodes make, in every cgroup hierarchy of this machine."""
    mark = hashlib.sha256(os.fsencode(directory)).hexdigest()[:10]
    return [
        hierarchy / f"muster-lab-{mark}-{node.name}" for node in real for hierarchy in cgroups.hierarchies()
    ]


def processes(directory: Path, real: Sequence[RealNode]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and command of each process: the network, which comes first, and the nodes."""
    folder = directory / FOLDER
    yield NETWORK, python("network", folder / f"{NETWORK}-specification.json")
    for node in real:
        yield node.name, python("machine", folder / node.name / "specification.json")


def api_server_flags(directory: Path) -> list[str]:
    """Return the flags by which the API server and the kubelets authenticate each other."""
    certificates = directory / "pki"
    return [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={certificates / 'ca.crt'}",
        f"--kubelet-client-certificate={certificates / 'kubelet-client.crt'}",
        f"--kubelet-client-key={certificates / 'kubelet-client.key'}",
        f"--egress-selector-config-file={directory / FOLDER / 'egress.yaml'}",
    ]


def python(module: str, specification: Path) -> list[str]:
    """Return the command that runs `main` of a module of this folder, with the standard library alone."""
    # the folder that contains musterlab, beside the standard library
    code = (
        f"import sys; sys.path.insert(0, {str(_PACKAGES)!r}); "
        f"from musterlab.realnodes import {module} as it; sys.exit(it.main(sys.argv[1]))"
    )
    return [sys.executable, "-I", "-S", "-c", code, str(specification)]


def _prepare_node(
    directory: Path, node: RealNode, authority: pki.Authority, api_port: int, tools: Tools
) -> None:
    folder = directory / FOLDER / node.name
    for name in machine.PERSISTENT:
        (folder / name).mkdir(parents=True)
    etc = folder / "etc"
    for name in ("kubernetes", "containerd/certs.d/_default", "cni/net.d"):
        (etc / name).mkdir(parents=True)
    authority.issue(
        f"{node.name}-kubelet", user=f"system:node:{node.name}", groups=("system:nodes",),
        names=(node.name,), addresses=(node.address,), server=True,
    )  # fmt: skip
    certificates = directory / "pki"
    for name in ("ca.crt", f"{node.name}-kubelet.crt", f"{node.name}-kubelet.key"):
        copied = etc / "kubernetes" / name.removeprefix(f"{node.name}-")
        pki.write_private(copied, (certificates / name).read_bytes())
    _write(etc / _KUBELET_ACCESS, _kubeconfig(api_port))
    _write(etc / "kubernetes/kubelet.yaml", _kubelet(node))
    (etc / "containerd/config.toml").write_text(
        _CONTAINERD.format(
            runc=machine.PROGRAMS + "/runc",
            base=f'base_runtime_spec = "/etc/{stack.BASE_SPECIFICATION}"' if node.gpus else "",
        )
    )
    (etc / "containerd/certs.d/_default/hosts.toml").write_text(
        f'server = "http://{LOOPBACK}:{network.REGISTRY_PORT}"\n'
    )
    _write(etc / "cni/net.d/10-lab.conflist", _pod_network(node))
    (etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{node.address} {node.name}\n")
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (etc / "group").write_text("root:x:0:\n")
    (etc / "machine-id").write_text(hashlib.sha256(os.fsencode(folder)).hexdigest()[:32] + "\n")
    os_release = Path("/etc/os-release")
    if os_release.exists():
        (etc / "os-release").write_bytes(os_release.read_bytes())
    gpus: dict[str, Any] = {}
    if node.gpus is not None:
        gpus = stack.prepare(folder, node.name, node.number, node.gpus, tools.programs)
        gpus["log"] = str(directory / supervisor.LOGS / f"{node.name}-gpus.log")
    specification = {
        "name": node.name,
        "gpus": gpus,
        "cpus": node.cpus,
        "directory": str(folder),
        "network": str(published(directory)),
        "etc": str(etc),
        "programs": {name: str(path) for name, path in tools.programs.items()},
        "plugins": str(tools.plugins),
        "cgroups": [str(folder) for folder in cgroup_folders(directory, [node])],
        "kubelet": [
            "--config=/etc/kubernetes/kubelet.yaml",
            f"--kubeconfig=/etc/{_KUBELET_ACCESS}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        ],
    }
    _write(folder / "specification.json", specification)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1))  # JSON is YAML


def _egress_selector(directory: Path) -> dict[str, Any]:
    connection = {
        "proxyProtocol": "HTTPConnect",
        "transport": {"uds": {"udsName": str(egress_socket(directory))}},
    }
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def _kubeconfig(api_port: int) -> dict[str, Any]:
    folder = "/etc/kubernetes"
    cluster = {"server": f"https://{LOOPBACK}:{api_port}", "certificate-authority": f"{folder}/ca.crt"}
    user = {"client-certificate": f"{folder}/kubelet.crt", "client-key": f"{folder}/kubelet.key"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }


def _kubelet(node: RealNode) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": 10250,
        "healthzPort": 0,
        "tlsCertFile": "/etc/kubernetes/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/kubelet.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{machine.CONTAINERD_SOCKET}",
        "clusterDNS": [network.NAME_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv.conf",
        "cgroupDriver": "cgroupfs",
        # the kubelet would limit a cgroup for all pods to the CPUs that the node shows, and that fails on a
        # machine with fewer
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "maxPods": int(node.profile.capacity["pods"]),
        # on a machine under load, a lease can be renewed late
        "nodeLeaseDurationSeconds": 120,
        # so that the node's status shows the number of allocatable GPUs soon
        **({"nodeStatusUpdateFrequency": "1s"} if node.gpus else {}),
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    }


def _pod_network(node: RealNode) -> dict[str, Any]:
    prefix = node.address.rpartition(".")[0]
    addresses = {"subnet": "10.80.0.0/16", "rangeStart": f"{prefix}.2", "rangeEnd": f"{prefix}.254"}
    bridge = {
        "type": "bridge",
        "bridge": network.BRIDGE,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{**addresses, "gateway": network.GATEWAY}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge]}


_CONTAINERD = f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = "{machine.CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"

[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
  # without the right to lower it, every container would fail
  restrict_oom_score_adj = true
  enable_cdi = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{machine.PLUGINS}"]
  conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  {{base}}

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{{runc}}"
  SystemdCgroup = false
"""
