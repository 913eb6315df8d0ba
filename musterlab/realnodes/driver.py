"""The driver's files on a node with GPUs, and NVIDIA's programs there. Standard library only: a node runs it.

All files are in the node's own `/run`, at the paths of the GPU operator, and vanish with the node. The machine's `/dev`
does not change.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from musterlab.realnodes import kernel

ROOT = "/run/nvidia/driver"
STATE = f"{ROOT}/config/nvml"
"""The file that the double of NVML reads, for programs of the node."""

_SYSFS = "/run/nvidia/sys"

_MAJOR = 195
_CONTROL_MINOR = 255
_UVM_MAJOR = 510
_DEBIAN_NVIDIA_SMI = Path("/usr/lib/nvidia/current/nvidia-smi")
_PLACEHOLDER = (
    "#!/bin/sh\necho 'nvidia-smi: this lab has the library of the driver, not its tools' >&2\nexit 9\n"
)
_POLL_SECONDS = 0.05
_RESTART_SECONDS = 1.0


def build(root: Path, gpus: Mapping[str, Any]) -> None:
    """Make the driver's files below the root of a node: library, devices, and the library's data."""
    base = root / ROOT.lstrip("/")
    libraries, programs, devices = base / "usr/lib64", base / "usr/bin", base / "dev"
    for folder in (libraries, programs, devices, base / "config"):
        folder.mkdir(parents=True)
    for name, path in gpus["libraries"].items():
        library = libraries / f"{name}.{gpus['version']}"
        library.touch()
        kernel.mount(path, str(library), flags=kernel.MS_BIND)
        (libraries / f"{name}.1").symlink_to(library.name)
        (libraries / name).symlink_to(f"{name}.1")
    kernel.mount(gpus["config"], str(base / "config"), flags=kernel.MS_BIND)
    sysfs = root / _SYSFS.lstrip("/")
    sysfs.mkdir()
    kernel.mount(gpus["sysfs"], str(sysfs), flags=kernel.MS_BIND)
    # NVIDIA's DRA driver does not start without nvidia-smi, and mounts it into containers
    nvidia_smi = programs / "nvidia-smi"
    nvidia_smi.write_text(_PLACEHOLDER)
    nvidia_smi.chmod(0o755)
    if _DEBIAN_NVIDIA_SMI.exists():
        kernel.mount(str(_DEBIAN_NVIDIA_SMI), str(nvidia_smi), flags=kernel.MS_BIND)
    numbers = {f"nvidia{minor}": (_MAJOR, minor) for minor in gpus["minors"]}
    numbers |= {"nvidiactl": (_MAJOR, _CONTROL_MINOR), "nvidia-uvm": (_UVM_MAJOR, 0)}
    numbers["nvidia-uvm-tools"] = (_UVM_MAJOR, 1)
    for name, (major, minor) in numbers.items():
        os.mknod(devices / name, 0o020666, os.makedev(major, minor))
        (devices / name).chmod(0o666)


def start_plugin(plugin: Mapping[str, Any], log: int) -> None:
    """Start a process that keeps NVIDIA's plugin running, as its DaemonSet would."""
    if os.fork() == 0:
        try:
            _keep_running(plugin, log)
        except BaseException as error:
            print(f"{plugin['command'][0]} is not kept running: {error}", file=sys.stderr, flush=True)
            os._exit(1)


def _keep_running(plugin: Mapping[str, Any], log: int) -> NoReturn:
    kernel.die_with_parent()
    # in this mount namespace, `/sys` has the GPUs; the node's other programs see the machine's PCI devices
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount(_SYSFS, "/sys", flags=kernel.MS_BIND)
    for path in plugin["waits_for"]:
        while not Path(path).exists():
            time.sleep(_POLL_SECONDS)
    while True:
        process = subprocess.Popen(
            plugin["command"], env=plugin["environment"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        status = process.wait()
        os.write(log, f"{plugin['command'][0]} ended with status {status}, and is started again\n".encode())
        time.sleep(_RESTART_SECONDS)
