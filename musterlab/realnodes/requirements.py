"""Requirements of a machine for real nodes, beside the built programs."""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from musterlab.errors import RealNodesUnavailable
from musterlab.realnodes import cgroups

MAXIMUM_NODES = 8

PLUGIN_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PLUGINS = ("bridge", "host-local", "loopback")

_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_INTERPRETER_SEGMENT = 3
_PROBE = """
import sys; sys.path.insert(0, {packages!r})
from musterlab.realnodes import kernel
kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWUTS
               | kernel.CLONE_NEWIPC | kernel.CLONE_NEWCGROUP)
kernel.add_bridge("probe", "02:00:00:00:00:01")
kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
kernel.mount("tmpfs", "/proc", "tmpfs")
"""


@dataclass(frozen=True)
class Tools:
    """Programs of the nodes by name, the directory of CNI plugins, a static busybox and its commands."""

    programs: Mapping[str, Path]
    plugins: Path
    busybox: Path
    applets: tuple[str, ...]


@dataclass(frozen=True)
class Distribution:
    """Programs of the distribution: runc, CNI plugins, busybox."""

    runc: Path
    plugins: Path
    busybox: Path

    def with_programs(self, programs: Mapping[str, Path]) -> Tools:
        """Add the programs that were found or built."""
        listed = subprocess.run([self.busybox, "--list"], capture_output=True, text=True, check=True).stdout
        return Tools({**programs, "runc": self.runc}, self.plugins, self.busybox, tuple(listed.split()))


def find() -> Distribution:
    """Find the programs for real nodes on this machine.

    Raises:
        RealNodesUnavailable: the message names all missing programs and their Debian packages.
    """
    runc, plugins, busybox = _runc(), _plugins(), _busybox()
    missing = [
        text
        for is_missing, text in (
            (os.geteuid() != 0, "root"),
            (runc is None, "runc (Debian: runc)"),
            (plugins is None, f"CNI plugins {', '.join(PLUGINS)} (Debian: containernetworking-plugins)"),
            (busybox is None, "a static busybox (Debian: busybox-static)"),
        )
        if is_missing
    ]
    if not missing:
        missing = [text for check in _CHECKS if (text := check())]
    if missing or runc is None or plugins is None or busybox is None:
        raise RealNodesUnavailable(
            f"this machine cannot run real nodes, it lacks {'; '.join(missing)}. Simulated nodes need none of it"
        )
    return Distribution(runc, plugins, busybox)


def _runc() -> Path | None:
    runc = shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return Path(runc).resolve() if runc else None


def _plugins() -> Path | None:
    for directory in PLUGIN_DIRECTORIES:
        if all(os.access(directory / name, os.X_OK) for name in PLUGINS):
            return directory
    return None


def _busybox() -> Path | None:
    busybox = shutil.which("busybox")
    return Path(busybox).resolve() if busybox and _is_static(Path(busybox)) else None


def _is_static(program: Path) -> bool:
    """Return whether a program is statically linked."""
    content = program.read_bytes()
    if not content.startswith(_ELF_64_LITTLE_ENDIAN):
        return False
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    kinds = [struct.unpack_from("<I", content, offset + number * size)[0] for number in range(count)]
    return _INTERPRETER_SEGMENT not in kinds


def _namespaces_missing() -> str:
    code = _PROBE.format(packages=str(Path(__file__).parents[2]))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    reason = next(reversed(done.stderr.splitlines()), "no message")
    return f"the right to make namespaces, mounts and bridges ({reason})"


def _cgroups_missing() -> str:
    hierarchies = cgroups.hierarchies()
    if not hierarchies:
        return "cgroups (none are mounted)"
    for hierarchy in hierarchies:
        folder = hierarchy / f"muster-lab-probe-{os.getpid()}"
        try:
            folder.mkdir()
            folder.rmdir()
        except OSError as error:
            return f"the right to make cgroups in {hierarchy} ({error.strerror})"
    return ""


_CHECKS: tuple[Callable[[], str], ...] = (_namespaces_missing, _cgroups_missing)
