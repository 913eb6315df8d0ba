"""The files that kubespray downloads, under the paths of their original sites, and the variables that name them."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.rehearsal import machines, recipes

RUNC: Final = "1.3.4"
NERDCTL: Final = "2.2.2"

EVICTION: Final = {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"}
"""Thresholds of the kubelet's eviction. A host shares the machine's disk, of which the default thresholds are
percentages.
"""

_NERDCTL: Final = b"""#!/bin/sh
# Stands in for nerdctl, of which kubespray asks for its completion alone where image_command_tool is crictl.
[ "$*" = "completion bash" ] && exit 0
echo "nerdctl: this stand-in does not know: $*" >&2
exit 1
"""


def write(root: Path, programs: Mapping[str, Path], runc: Path) -> dict[str, str]:
    """Write the files beside those of Kubernetes below `root`; return kubespray's variables with their checksums."""
    release = "releases/download/v"
    etcd, containerd = f"etcd-v{recipes.ETCD}-linux-amd64", f"containerd-{recipes.CONTAINERD}-linux-amd64"
    cni, crictl = f"cni-plugins-linux-amd64-v{recipes.CNI_PLUGINS}", f"crictl-v{recipes.CRICTL}-linux-amd64"
    github = "github.com"

    def read(recipe: str, folder: str, *names: str) -> bytes:
        return _archive({f"{folder}{name}": programs[f"{recipe}/{name}"].read_bytes() for name in names})

    of: dict[str, tuple[str, bytes]] = {}
    of["etcd_binary_checksum"] = (
        f"{github}/etcd-io/etcd/{release}{recipes.ETCD}/{etcd}.tar.gz",
        read("etcd", f"{etcd}/", "etcd", "etcdctl", "etcdutl"),
    )
    of["cni_binary_checksum"] = (
        f"{github}/containernetworking/plugins/{release}{recipes.CNI_PLUGINS}/{cni}.tgz",
        read("cni", "./", *recipes.PLUGINS),
    )
    of["crictl_binary_checksum"] = (
        f"{github}/kubernetes-sigs/cri-tools/{release}{recipes.CRICTL}/{crictl}.tar.gz",
        read("crictl", "", "crictl"),
    )
    of["containerd_archive_checksum"] = (
        f"{github}/containerd/containerd/{release}{recipes.CONTAINERD}/{containerd}.tar.gz",
        read("containerd", "bin/", "containerd", "containerd-shim-runc-v2", "ctr"),
    )
    of["runc_binary_checksum"] = (
        f"{github}/opencontainers/runc/{release}{RUNC}/runc.amd64",
        runc.read_bytes(),
    )
    of["nerdctl_archive_checksum"] = (
        f"{github}/containerd/nerdctl/{release}{NERDCTL}/nerdctl-{NERDCTL}-linux-amd64.tar.gz",
        _archive({"nerdctl": _NERDCTL}),
    )
    return _stored(root, of)


def write_kubernetes(root: Path, programs: Mapping[str, Path], recipe: str, release: str) -> dict[str, str]:
    """Write the files of a release of Kubernetes below `root`; return kubespray's variables with their checksums."""
    folder = f"dl.k8s.io/release/v{release}/bin/linux/amd64"
    names = ("kubelet", "kubectl", "kubeadm")
    return _stored(
        root,
        {
            f"{name}_binary_checksum": (f"{folder}/{name}", programs[f"{recipe}/{name}"].read_bytes())
            for name in names
        },
    )


def _stored(root: Path, of: Mapping[str, tuple[str, bytes]]) -> dict[str, str]:
    checksums = {}
    for variable, (path, content) in of.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        checksums[variable] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return checksums


def variables(checksums: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables for the versions of this build and for a host that is a container.

    The table in docs/reference/rehearsal.md has each variable for such a host, beside the property that a container
    lacks.
    """
    built = {
        "containerd_version": recipes.CONTAINERD,
        "etcd_version": recipes.ETCD,
        "cni_version": recipes.CNI_PLUGINS,
        "crictl_version": recipes.CRICTL,
        "nerdctl_version": NERDCTL,
        "runc_version": RUNC,
        "image_command_tool": "crictl",
        "enable_dns_autoscaler": False,
        "loadbalancer_apiserver_localhost": False,
    }
    container = {
        "kubelet_fail_cgroup_v1": False,
        "kubeadm_ignore_preflight_errors": ["SystemVerification"],
        "containerd_storage_dir": f"{machines.RUNTIME_DISK}/data",
        "containerd_extra_runtime_args": {"restrict_oom_score_adj": True},
        "containerd_base_runtime_spec_rlimit_nofile": 16384,
        "kube_proxy_mode": "iptables",
        "enable_nodelocaldns": False,
        "kube_proxy_conntrack_max_per_core": 0,
        "kube_proxy_conntrack_min": 0,
        "eviction_hard": EVICTION,
        "eviction_hard_control_plane": EVICTION,
    }
    return built | container | dict(checksums)


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive with the fastest gzip compression, because it is unpacked on the same machine."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
