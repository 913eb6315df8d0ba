"""The site of the rehearsal: three hosts, and a sentence for each stand-in for hardware or a download."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deployment.hosts.scenarios import TOOLKIT
from tests.rehearsal import gpus, namespace, recipes
from tests.rehearsal.machines import Machine

IMAGE: Final = "docker.io/library/muster"
WORKERS: Final = ("gpu01", "gpu02")
NEWEST: Final = {"kubernetes": "kubernetes", "driver": "580"}
"""The recipe of Kubernetes and the branch of the driver that a site has at the end."""
OLDER: Final = {"kubernetes": "kubernetes-older", "driver": "570"}
"""The recipe and the branch that the rehearsal with faults installs first, and then upgrades."""
GPU_DEVICE: Final = "2330"
"""PCI device number of an H100 SXM in the output of `lspci`."""

STAND_INS: Final = {
    "hosts": "systemd-nspawn guests on one kernel, with its cgroups and without its modules",
    "processors": "32 shown to each kubelet; the machine has fewer",
    "driver": "packages with the names of NVIDIA's, whose nvidia-smi prints the GPUs of a faked PCI bus; no libcuda",
    "fabric manager": "a program with the name of NVIDIA's, and four NVSwitches on the faked PCI bus",
    "container_toolkit": "packages with the names of NVIDIA's, whose runtime is runc",
    "gpus": f"muster's double of NVML; {gpus.COUNT} GPUs a worker compute nothing; NVIDIA's plugin announces them",
    "feature discovery": "labels that the rehearsal sets",
    "images of the scenarios": "busybox under the names of TR-4858, without TensorFlow and CUDA",
    "kubernetes": "kubeadm, kubelet, containerd, etcd, CNI plugins, flannel and CoreDNS built from their Go modules, "
    "with checksums of this build",
    "pause": "busybox",
    "nerdctl": "a script that knows its completion alone",
    "storage": "muster's CSI driver for labs with external-provisioner: folders of the machine, no ONTAP and Trident",
    "bundle": "a file server and a registry on the controller",
}
"""A sentence for each replaced program or piece of hardware, for the description of the site and the file beside the
record.
"""


def hosts(folder: Path) -> list[Machine]:
    """Return the hosts: a control plane, and workers whose firmware and PCI bus are those of servers with GPUs."""
    return [
        Machine("cp01", "10.90.0.11", folder),
        *(
            Machine(name, f"10.90.0.{20 + number}", folder, gpus=(GPU_DEVICE,) * gpus.COUNT, number=number)
            for number, name in enumerate(WORKERS, start=1)
        ),
    ]


def write(
    directory: Path, machines: Sequence[Machine], packages: Path, *, deepops: Mapping[str, str],
    bundle: Mapping[str, Any], extra: Mapping[str, Any], version: str, releases: Mapping[str, str],
) -> None:  # fmt: skip
    """Write the site file, and the file of the hosts' keys."""
    directory.mkdir(parents=True, exist_ok=True)
    known = directory / "known_hosts"
    known.write_text("".join(machine.host_key for machine in machines))
    key = hashlib.sha256((packages / "toolkit" / "gpgkey").read_bytes()).hexdigest()
    roles = {"cp01": ["control_plane", "etcd"], **{name: ["gpu"] for name in WORKERS}}
    document = {
        "schema": 1,
        "name": "rehearsal",
        "description": f"Rehearsal; stand-ins: {'; '.join(f'{name}: {what}' for name, what in STAND_INS.items())}",
        "access": {
            "user": "root",
            "become": False,
            "known_hosts": str(known),
            "key_file": str(machines[0].key_file),
        },
        "hosts": {
            machine.name: {
                "address": machine.address,
                "os": "ubuntu-24.04",
                "model": "generic",
                "roles": roles[machine.name],
            }
            for machine in machines
        },
        "versions": {
            "kubernetes": recipes.RELEASES[releases["kubernetes"]],
            "deepops": "26.07",
            "driver": releases["driver"],
            "container_toolkit": "1.19.1",
            "dra": "off",
            "device_plugin": "off",
        },
        "kubernetes": {"network_plugin": "flannel", "upstream_dns": [namespace.CONTROLLER]},
        "driver": {"extra_packages": [f"nvidia-fabricmanager-{releases['driver']}"]},
        "deepops": deepops,
        "orchestrator": {"image": f"{IMAGE}:{version}"},
        "bundle": dict(bundle),
        "not_applicable": {
            "nexus": "the hosts are guests on one bridge",
            "ontap": "there is no storage system",
            "trident": "there is no storage system",
            "nfs_client": "there is no storage system",
        },
        "vars": {
            **TOOLKIT,
            "container_toolkit_key_sha256": key,
            "driver_reboot": True,
            "preflight_free_gib": 1,
            "preflight_control_plane_memory_gib": 1,
            "verify_storage": True,
            "verify_gpus_by_host": dict.fromkeys(WORKERS, gpus.COUNT),
            "deepops_extra_variables": dict(extra),
        },
    }
    (directory / "site.yml").write_text(yaml.safe_dump(document, sort_keys=False, width=120))
