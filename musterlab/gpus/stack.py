"""What a node with GPUs runs of NVIDIA's, and what it reads: written into the node's folder before it starts."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from musterlab.errors import StateError
from musterlab.gpus import recipe
from musterlab.gpus.chart import NAMESPACE
from musterlab.gpus.models import Gpus, Stack
from musterlab.realnodes import driver, images, machine

ACCESS = "kubernetes/gpu-driver.kubeconfig"
"""Kubeconfig of the DRA driver, below the node's `/etc`."""

BASE_SPECIFICATION = "containerd/base.json"
"""What every container of the node begins with, below the node's `/etc`."""

CONFIGURATION_FOLDER = "gpus"
"""Folder of a node that holds what the mock shows (`config.yaml`), and what was changed (`overrides.yaml`)."""

_SECONDS = 30
_KUBELET = "/var/lib/kubelet"
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
    # the mock in a container looks for its profile there; CDI mounts the library alone
    ("/config", "bind", f"{driver.ROOT}/config", ("bind", "ro", "nosuid", "nodev", "noexec")),
)


def prepare(folder: Path, name: str, number: int, gpus: Gpus, programs: Mapping[str, Path]) -> dict[str, Any]:
    """Write what the mock shows on a node, and what containers begin with; return the node's part of GPUs."""
    shipped = programs[recipe.LIBRARY].parent / recipe.MOCK_PROFILES
    configuration = folder / CONFIGURATION_FOLDER
    configuration.mkdir()
    # JSON is YAML
    (configuration / "config.yaml").write_text(json.dumps(gpus.mock_profile(number, shipped)))
    _render_pci(programs[recipe.MOCK_PCI], configuration / "config.yaml", folder / "pci")
    (folder / "etc" / BASE_SPECIFICATION).write_text(json.dumps(_base_specification()))
    libraries = {"libnvidia-ml.so": str(programs[recipe.LIBRARY])}
    if gpus.cuda_library is not None:
        libraries["libcuda.so"] = str(gpus.cuda_library.resolve())
    return {
        "libraries": libraries,
        "version": recipe.DRIVER_VERSION,
        "config": str(configuration),
        "sysfs": str(folder / "pci" / "sys"),
        "minors": list(range(gpus.count)),
        "plugin": _plugin(name, gpus),
    }


def _render_pci(program: Path, configuration: Path, target: Path) -> None:
    """Write what `/sys` shows of the GPUs: on which socket of the machine each one is.

    Raises:
        StateError: it cannot be written.
    """
    command = [str(program), "--strict", f"--config={configuration}", f"--output={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        raise StateError(f"the sockets of the GPUs cannot be written to {target}: {done.stderr.strip()}")


def _plugin(name: str, gpus: Gpus) -> dict[str, Any]:
    """Give command and environment of NVIDIA's program, and the paths that must be there before it starts."""
    commands: dict[Stack, tuple[list[str], list[str]]] = {
        "device-plugin": (_device_plugin(), [f"{_KUBELET}/device-plugins/kubelet.sock"]),
        "dra": (
            _dra_driver(name, gpus.consumable_shares),
            [f"{_KUBELET}/plugins_registry", f"/etc/{ACCESS}"],
        ),
    }
    command, waits_for = commands[gpus.stack]
    return {
        "command": command,
        "environment": {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "NODE_NAME": name,
            "MOCK_NVML_CONFIG": driver.CONFIGURATION,
        },
        "waits_for": waits_for,
    }


def _device_plugin() -> list[str]:
    return [
        f"{machine.PROGRAMS}/{recipe.DEVICE_PLUGIN}",
        f"--nvidia-driver-root={driver.ROOT}",
        f"--nvidia-dev-root={driver.ROOT}",
        f"--driver-root-ctr-path={driver.ROOT}",
        f"--nvidia-cdi-hook-path={machine.PROGRAMS}/{recipe.CDI_HOOK}",
        "--device-list-strategy=cdi-cri",
    ]


def _dra_driver(name: str, consumable_shares: str) -> list[str]:
    feature_gates = ["NVMLDeviceHealthCheck=true"]
    shares = []
    if consumable_shares != "disabled":
        feature_gates.append("ConsumableShares=true")
        shares.append(f"--consumable-shares={consumable_shares}")
    return [
        f"{machine.PROGRAMS}/{recipe.DRA_DRIVER}",
        f"--node-name={name}",
        f"--namespace={NAMESPACE}",
        f"--kubeconfig=/etc/{ACCESS}",
        "--cdi-root=/var/run/cdi",
        f"--nvidia-driver-root={driver.ROOT}",
        f"--container-driver-root={driver.ROOT}",
        f"--nvidia-cdi-hook-path={machine.PROGRAMS}/{recipe.CDI_HOOK}",
        f"--image-name={images.SHELL}",
        f"--feature-gates={','.join(feature_gates)}",
        *shares,
    ]


def _base_specification() -> dict[str, Any]:
    """Give what containerd would begin with by itself, and the folder of the mock."""
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
