"""The NVIDIA programs of a node with GPUs, and their files: written into the node's folder before its start."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from musterlab import programs
from musterlab.gpus import built, chart, shown
from musterlab.gpus.models import Gpus, driver_version
from musterlab.realnodes import driver, images, machine

ACCESS = "kubernetes/gpu-driver.kubeconfig"
"""Kubeconfig of the DRA driver, below the node's `/etc`."""

BASE_SPECIFICATION = "containerd/base.json"
"""Base OCI specification of every container of the node, below the node's `/etc`."""

CONFIGURATION_FOLDER = "gpus"
"""Folder of a node with the data of the double of NVML."""

_KUBELET = "/var/lib/kubelet"
_CDI_ROOT = "/var/run/cdi"
_NVIDIA_VENDOR = 0x10DE
_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip
_MOUNTS = (
    ("/proc", "proc", "proc", ("nosuid", "noexec", "nodev")),
    ("/dev", "tmpfs", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    (
        "/dev/pts",
        "devpts",
        "devpts",
        ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
    ),
    ("/dev/mqueue", "mqueue", "mqueue", ("nosuid", "noexec", "nodev")),
    ("/sys", "sysfs", "sysfs", ("nosuid", "noexec", "nodev", "ro")),
    # the double of NVML in a container reads its file here; CDI mounts only the library
    ("/config", "bind", f"{driver.ROOT}/config", ("bind", "ro", "nosuid", "nodev", "noexec")),
)


def prepare(folder: Path, name: str, number: int, gpus: Gpus, paths: Mapping[str, Path]) -> dict[str, Any]:
    """Write the data of the double of NVML, the PCI devices and the base specification of containers for a node.

    Return the node's GPU settings.
    """
    configuration = folder / CONFIGURATION_FOLDER
    shown.create(configuration, gpus, number)
    _write_pci(folder / "pci" / "sys", shown.read_gpus(configuration))
    (folder / "etc" / BASE_SPECIFICATION).write_text(json.dumps(_base_specification()))
    libraries = {built.LIBRARY: str(paths[built.LIBRARY])}
    if gpus.cuda_library is not None:
        libraries["libcuda.so"] = str(gpus.cuda_library.resolve())
    return {
        "libraries": libraries,
        "version": driver_version(),
        "config": str(configuration),
        "sysfs": str(folder / "pci" / "sys"),
        "minors": list(range(gpus.count)),
        "plugin": _plugin(name, gpus),
    }


def _write_pci(sysfs: Path, gpus: list[dict[str, Any]]) -> None:
    """Write the GPUs into `/sys`: the PCI root and the NUMA node of each one."""
    by_address = sysfs / "bus/pci/devices"
    by_address.mkdir(parents=True)
    for gpu in gpus:
        address = gpu["bus_id"].lower()
        device = sysfs / "devices" / gpu["root"] / address
        device.mkdir(parents=True)
        files = {
            "numa_node": str(gpu["numa"]),
            "vendor": f"{_NVIDIA_VENDOR:#06x}",
            "device": f"{gpu['pci_device'] >> 16:#06x}",
            "class": "0x030200",
        }
        for name, text in files.items():
            (device / name).write_text(f"{text}\n")
        (by_address / address).symlink_to(f"../../../devices/{gpu['root']}/{address}")


def _plugin(name: str, gpus: Gpus) -> dict[str, Any]:
    """Return the program that announces GPUs to the kubelet: command, environment, and the paths it must wait for."""
    registry = [f"{_KUBELET}/plugins_registry", f"/etc/{ACCESS}"]
    if gpus.stack == "device-plugin":
        command, waits_for = _device_plugin(), [f"{_KUBELET}/device-plugins/kubelet.sock"]
    elif gpus.has_nvidias_dra_driver:
        command, waits_for = _dra_driver(name, gpus.shares), registry
    else:
        command, waits_for = _example_driver(name, gpus.count), registry
    return {
        "command": command,
        "environment": {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "NODE_NAME": name,
            shown.VARIABLE: driver.STATE,
        },
        "waits_for": waits_for,
    }


def _device_plugin() -> list[str]:
    return [
        f"{machine.PROGRAMS}/{built.DEVICE_PLUGIN}",
        f"--nvidia-driver-root={driver.ROOT}",
        f"--nvidia-dev-root={driver.ROOT}",
        f"--driver-root-ctr-path={driver.ROOT}",
        f"--nvidia-cdi-hook-path={machine.PROGRAMS}/{built.CDI_HOOK}",
        "--device-list-strategy=cdi-cri",
    ]


def _dra_driver(name: str, shares: str) -> list[str]:
    feature_gates = ["NVMLDeviceHealthCheck=true"]
    sharing = []
    if shares != "disabled":
        feature_gates.append("ConsumableShares=true")
        sharing.append(f"--consumable-shares={shares}")
    return [
        f"{machine.PROGRAMS}/{programs.DRA_DRIVER.file}",
        f"--node-name={name}",
        f"--namespace={chart.NAMESPACE}",
        f"--kubeconfig=/etc/{ACCESS}",
        f"--cdi-root={_CDI_ROOT}",
        f"--nvidia-driver-root={driver.ROOT}",
        f"--container-driver-root={driver.ROOT}",
        f"--nvidia-cdi-hook-path={machine.PROGRAMS}/{built.CDI_HOOK}",
        f"--image-name={images.SHELL}",
        f"--feature-gates={','.join(feature_gates)}",
        *sharing,
    ]


def _example_driver(name: str, count: int) -> list[str]:
    return [
        f"{machine.PROGRAMS}/{built.EXAMPLE_DRIVER}",
        f"--node-name={name}",
        f"--kubeconfig=/etc/{ACCESS}",
        # This directory survives a reboot; the driver does not write its files again after one.
        "--cdi-root=/etc/cdi",
        f"--num-devices={count}",
        f"--driver-name={chart.DRIVER}",
    ]


def _base_specification() -> dict[str, Any]:
    """Return containerd's default OCI specification, with a mount of the folder that the double of NVML reads."""
    capabilities = [f"CAP_{name}" for name in _CAPABILITIES]
    return {
        "ociVersion": "1.2.1",
        "root": {"path": "rootfs"},
        "process": {
            "cwd": "/",
            "user": {"uid": 0, "gid": 0},
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "mounts": [
            {"destination": destination, "type": kind, "source": source, "options": list(options)}
            for destination, kind, source, options in _MOUNTS
        ],
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")],
        },
    }
