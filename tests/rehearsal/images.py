"""The images of the rehearsal's site, as an OCI layout that a registry serves under the names of other registries."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from musterlab import oci
from musterlab.gpus import built
from musterlab.realnodes import images as lab_images
from tests.deployment.hosts import bases
from tests.rehearsal import gpus, recipes

_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TOOLS: Final = ("conntrack", "ipset", "iproute2", "iptables", "kmod", "nftables")
_PAUSE: Final = "3.10.1"
_WAIT: Final = '[ "$1" = -v ] || exec /bin/busybox sleep infinity'
"""The stand-in of pause. `kubeadm upgrade` runs it with `-v` in its health check, and expects that it ends."""
_FLANNEL_PLUGIN: Final = "1.7.1-flannel1"


def build(directory: Path, programs: Mapping[str, Path], busybox: Path, archive: Path) -> None:
    """Write the images of kubespray's cluster, of the scenarios and of an OCI archive into `directory`."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    lab_images.build(directory, busybox, listed.split(), [archive])
    described = {
        entry["annotations"][oci.NAME]: {key: value for key, value in entry.items() if key != "annotations"}
        for entry in json.loads((directory / oci.INDEX).read_text())["manifests"]
    }
    layout = oci.Layout(directory)
    layout.write_index({**described, **add(layout, programs, _tools().read_bytes(), busybox)})


def names(directory: Path) -> list[str]:
    """Return the names of the images in a layout."""
    index = json.loads((directory / oci.INDEX).read_text())
    return sorted(entry["annotations"][oci.NAME] for entry in index["manifests"])


def add(
    layout: oci.Layout, programs: Mapping[str, Path], tools: bytes, busybox: Path
) -> dict[str, dict[str, Any]]:
    """Store the images of kubespray's cluster in a layout. Return their descriptors by name.

    `tools` is the layer that is put below programs that call iptables.
    """
    described = {}

    def store(
        name: str,
        program: Path,
        path: str,
        *,
        arguments: tuple[str, ...] = (),
        on: bytes = b"",
        environment: tuple[str, ...] = (),
    ) -> None:
        layers = [(oci.sha256(layer), layer) for layer in (on, _layer(program, path)) if layer]
        config = {"Env": [_PATH, *environment], "Entrypoint": [f"/{path}", *arguments]}
        described[name] = layout.add_image({"config": config}, layers)

    for recipe, release in recipes.RELEASES.items():
        if f"{recipe}/kube-proxy" not in programs:
            continue
        for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            name = f"registry.k8s.io/{program}:v{release}"
            store(name, programs[f"{recipe}/{program}"], f"usr/local/bin/{program}")
        proxy = programs[f"{recipe}/kube-proxy"]
        store(f"registry.k8s.io/kube-proxy:v{release}", proxy, "usr/local/bin/kube-proxy", on=tools)
    dns = f"registry.k8s.io/coredns/coredns:v{recipes.COREDNS}"
    store(dns, programs["coredns/coredns"], "coredns")
    store(f"registry.k8s.io/pause:{_PAUSE}", busybox, "bin/busybox", arguments=("sh", "-c", _WAIT, "pause"))
    daemon = f"docker.io/flannel/flannel:v{recipes.FLANNEL}"
    store(daemon, programs["flannel/flannel"], "opt/bin/flanneld", on=tools)
    plugin = f"docker.io/flannel/flannel-cni-plugin:v{_FLANNEL_PLUGIN}"
    store(plugin, programs["flannelcni/flannel"], "flannel", on=tools)
    device_plugin = programs[f"gpus/{built.DEVICE_PLUGIN}"]
    store(gpus.PLUGIN_IMAGE, device_plugin, gpus.PLUGIN_PATH, on=tools, environment=gpus.PLUGIN_ENVIRONMENT)
    return described


def _tools() -> Path:
    """Return a tar archive with a root file system that has the programs of kube-proxy and flannel. It is made once."""
    name = hashlib.sha256(repr(_TOOLS).encode()).hexdigest()[:12]
    made = bases.cache() / f"rehearsal-tools-{name}.tar"
    with bases.locked(made.with_suffix(".lock")):
        if not made.exists():
            unfinished = made.with_suffix(".unfinished.tar")
            options = ["--mode=root", "--variant=minbase", "--quiet", f"--include={','.join(_TOOLS)}"]
            bases.call(["mmdebstrap", *options, "noble", str(unfinished), *bases.archive_lines("noble")])
            unfinished.rename(made)
    return made


def _layer(program: Path, path: str) -> bytes:
    """Return a tar archive with one program and the mount points that Kubernetes needs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, mode in (("tmp", 0o1777), ("etc", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        content = program.read_bytes()
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = len(content), 0o755
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
