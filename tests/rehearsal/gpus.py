"""GPUs of the rehearsal: NVIDIA's device plugin in the cluster, on muster's double of NVML on the host.

The folder /srv/nvidia of the host has the double and the state of its GPUs. The stand-in of NVIDIA's runtime
(tests/deployment/hosts/stubs.py) mounts both into each container whose environment asks for GPUs: the device plugin,
muster's agent and the jobs.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from musterlab.gpus import built, shown
from musterlab.gpus.models import RESOURCE, Gpus

COUNT: Final = 4
"""GPUs of each worker. The two workers together have the GPUs of one DGX H100."""
GPUS: Final = Gpus("h100", COUNT, "device-plugin")
PLUGIN_IMAGE: Final = "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"
"""NVIDIA's name of the image. The rehearsal's image has the plugin built from the Go module of this release, over
Ubuntu.
"""
PLUGIN_PATH: Final = f"usr/bin/{built.DEVICE_PLUGIN}"
PLUGIN_ENVIRONMENT: Final = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility")
SWITCHES: Final = dict.fromkeys(("0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0"), "22a3")
"""NVSwitches of a DGX H100 by PCI address, with the device number by which `lspci` lists GH100 [H100 NVSwitch]."""
PRESENT: Final = "nvidia.com/gpu.present"

_KUBELET: Final = "/var/lib/kubelet/device-plugins"
_MIB: Final = 1 << 20


def addresses() -> tuple[str, ...]:
    """Return the addresses of the GPUs on the PCI bus, as the kernel writes them."""
    return tuple(gpu["bus_id"].lower() for gpu in GPUS.of_node(1))


def furnish(disk: Path, library: Path, node_number: int) -> None:
    """Put the double of NVML and the state of the host's GPUs on its disk. No two hosts have a GPU in common."""
    folder = disk / "srv/nvidia"
    folder.mkdir(parents=True)
    shutil.copy(library, folder / "libnvidia-ml.so.1")
    shown.create(state(disk), GPUS, node_number)


def state(disk: Path) -> Path:
    """Return the folder with the state of the GPUs, which `musterlab.gpus.shown` changes."""
    return disk / "srv/nvidia/config"


def labels() -> dict[str, str]:
    """Return the labels that feature discovery gives a node with these GPUs."""
    (first, *_) = GPUS.of_node(1)
    return {
        PRESENT: "true",
        "nvidia.com/gpu.product": first["name"].replace(" ", "-"),
        "nvidia.com/gpu.memory": str(first["memory_total"] // _MIB),
        "nvidia.com/gpu.count": str(COUNT),
    }


def plugin() -> Mapping[str, Any]:
    """Return the DaemonSet of the device plugin, with the fields of NVIDIA's chart that matter here."""
    name = {"app.kubernetes.io/name": "nvidia-device-plugin"}
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": PLUGIN_IMAGE,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "kubelet", "mountPath": _KUBELET}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system", "labels": name},
        "spec": {
            "selector": {"matchLabels": name},
            "template": {
                "metadata": {"labels": name},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": {PRESENT: "true"},
                    "tolerations": [{"key": RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [container],
                    "volumes": [{"name": "kubelet", "hostPath": {"path": _KUBELET}}],
                },
            },
        },
    }
