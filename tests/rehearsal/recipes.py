"""The programs that kubespray downloads for the rehearsal's site, built from the Go module proxy once and kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from musterlab import binaries
from musterlab.build import Part, Recipe
from musterlab.gpus.built import GPU_PROGRAMS
from musterlab.storage.recipe import STORAGE_PROGRAMS
from orchestrator.progress import Reporter

KUBERNETES: Final = "1.35.4"
OLDER_KUBERNETES: Final = "1.35.3"
"""The release that the rehearsal with faults installs, and upgrades by one patch release."""
ETCD: Final = "3.6.8"
CONTAINERD: Final = "2.2.2"
CRICTL: Final = "1.36.0"
CNI_PLUGINS: Final = "1.9.1"
FLANNEL: Final = "0.28.4"
COREDNS: Final = "1.12.4"

_FOLDER = Path(__file__).parent / "programs"
_SMALL = "-s -w"
_VERSION = "k8s.io/component-base/version"
_OF_CONTAINERD = f"{_SMALL} -X github.com/containerd/containerd/v2/version.Version=v{CONTAINERD}"
_OF_CRICTL = f"{_SMALL} -X sigs.k8s.io/cri-tools/pkg/version.Version=v{CRICTL}"
_OF_CNI = (
    f"{_SMALL} -X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v{CNI_PLUGINS}"
)
_OF_FLANNEL = f"{_SMALL} -X github.com/flannel-io/flannel/pkg/version.Version=v{FLANNEL}"

PLUGINS: Final = (
    *(
        "bandwidth",
        "bridge",
        "dhcp",
        "firewall",
        "host-device",
        "host-local",
        "ipvlan",
        "loopback",
        "macvlan",
    ),
    *("portmap", "ptp", "sbr", "static", "tuning", "vlan", "vrf"),
)
"""CNI plugins in the archive that kubespray unpacks, by the names of their Go packages."""


def _recipe(what: str, folder: str, programs: tuple[str, ...], flags: str, minutes: str) -> Recipe:
    part = Part(_FOLDER / folder, ("tool",), ("-trimpath", "-ldflags", flags))
    return Recipe(what, f"rehearsal-{folder}-", programs, (part,), minutes, only_built=True)


def _kubernetes(release: str, folder: str) -> Recipe:
    programs = (
        *("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"),
        *("kubeadm", "kubectl", "kubelet"),
    )
    stamp = f"-X {_VERSION}.gitVersion=v{release} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=35"
    return _recipe(f"Kubernetes {release}", folder, programs, f"{_SMALL} {stamp}", "10 to 30 minutes")


RECIPES: Final = {
    "kubernetes": _kubernetes(KUBERNETES, "kubernetes"),
    "etcd": _recipe(f"etcd {ETCD}", "etcd", ("etcd", "etcdctl", "etcdutl"), _SMALL, "1 to 3 minutes"),
    "containerd": _recipe(
        f"containerd {CONTAINERD}",
        "containerd",
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        _OF_CONTAINERD,
        "1 to 5 minutes",
    ),
    "crictl": _recipe(f"crictl {CRICTL}", "crictl", ("crictl",), _OF_CRICTL, "1 to 5 minutes"),
    "cni": _recipe(f"CNI plugins {CNI_PLUGINS}", "cni", PLUGINS, _OF_CNI, "1 to 3 minutes"),
    "flannelcni": _recipe("flannel's CNI plugin", "flannelcni", ("flannel",), _SMALL, "1 minute"),
    "flannel": Recipe(
        f"flannel {FLANNEL}",
        "rehearsal-flannel-",
        ("flannel",),
        (
            Part(
                _FOLDER / "flannel",
                ("tool",),
                ("-trimpath", "-ldflags", _OF_FLANNEL),
                {"CGO_ENABLED": "1"},
            ),
        ),
        "1 to 5 minutes; needs gcc",
        only_built=True,
    ),
    "coredns": _recipe(f"CoreDNS {COREDNS}", "coredns", ("coredns",), _SMALL, "2 to 8 minutes"),
    "gpus": GPU_PROGRAMS,
    "storage": STORAGE_PROGRAMS,
}


RELEASES: Final = {"kubernetes": KUBERNETES, "kubernetes-older": OLDER_KUBERNETES}
"""Releases of Kubernetes by recipe."""
OLDER: Final = {"kubernetes-older": _kubernetes(OLDER_KUBERNETES, "kubernetes-older")}


def built(reporter: Reporter, recipes: Mapping[str, Recipe]) -> dict[str, Path]:
    """Return every program by `RECIPE/PROGRAM`; build those that the cache lacks, one recipe after another."""
    return {
        f"{name}/{program}": path
        for name, recipe in recipes.items()
        for program, path in binaries.find(reporter, recipe).paths.items()
    }
