"""The GPU programs that the lab builds, and the roles that they have in a lab.

NVIDIA's device plugin, its CDI hook and the DRA example driver come from the Go module proxy, as go.mod and go.sum pin
them. The double of NVML is muster's own, in C.
"""

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from musterlab import binaries, programs
from musterlab.build import Go, Part, Recipe
from musterlab.errors import BinariesError
from musterlab.gpus.models import Gpus
from orchestrator.progress import Reporter

LIBRARY: Final = "libnvidia-ml.so"
DEVICE_PLUGIN: Final = "nvidia-device-plugin"
CDI_HOOK: Final = "nvidia-cdi-hook"
EXAMPLE_DRIVER: Final = "dra-example-kubeletplugin"

_FOLDER: Final = Path(__file__).parent
_SECONDS: Final = 120
_COMPILE: Final = (
    "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden",
    "-Wl,-soname,libnvidia-ml.so.1",
)  # fmt: skip
_PLUGIN_VERSION: Final = "github.com/NVIDIA/k8s-device-plugin"
_EXAMPLE_VERSION: Final = "sigs.k8s.io/dra-example-driver"
# lazy binding: programs load the driver's library at run time, so its functions must not be resolved at the
# start
_LAZY: Final = ("-trimpath", "-ldflags", "-s -w -extldflags=-Wl,-z,lazy")
_CGO: Final = {"CGO_ENABLED": "1", "CGO_CFLAGS": "-O2 -Wno-deprecated-declarations"}


@dataclass(frozen=True)
class CLibrary:
    """A shared library of C files in one folder."""

    folder: Path
    name: str

    def identity(self) -> bytes:
        """Return a digest of the files and the compiler options."""
        digest = hashlib.sha256(repr((self.name, _COMPILE)).encode())
        for path in sorted(self.folder.glob("*.[ch]")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.digest()

    def build(self, workspace: Path, output: Path, go: Go, reporter: Reporter) -> int:  # noqa: ARG002
        """Compile the files. Returns the number of C files. Raises BinariesError."""
        sources = sorted(self.folder.glob("*.c"))
        reporter(f"compiling {self.name}")
        compile_library(sources, output / self.name)
        return len(sources)


def compile_library(sources: list[Path], target: Path) -> None:
    """Compile C files into a shared library. Raises BinariesError with the compiler's first error."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BinariesError(f"there is no C compiler, which {target.name} needs (Debian: gcc and libc6-dev)")
    command = [compiler, *_COMPILE, "-o", str(target), *map(str, sources), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise BinariesError(f"{target.name} cannot be compiled: {lines[0]}")


GPU_PROGRAMS: Final = Recipe(
    subject="NVIDIA's device plugin and the double of NVML",
    prefix="gpus-",
    programs=(LIBRARY, DEVICE_PLUGIN, CDI_HOOK),
    parts=(CLibrary(_FOLDER / "nvml", LIBRARY), Part(_FOLDER / "plugin", ("tool",), _LAZY, _CGO)),
    minutes="2 to 5 minutes",
    only_built=True,
)
EXAMPLE_PROGRAMS: Final = Recipe(
    subject="the DRA example driver",
    prefix="dra-",
    programs=(EXAMPLE_DRIVER,),
    parts=(Part(_FOLDER / "exampledriver", ("tool",), ("-trimpath", "-ldflags", "-s -w")),),
    minutes="1 to 4 minutes",
    only_built=True,
)


def choose(gpus: Gpus, reporter: Reporter) -> dict[str, Path]:
    """Find or build the programs for the GPUs of a lab, report the program of each role, and return their paths.

    Raises:
        BinariesError: a program is missing and cannot be built; the message names it and its origin.
    """
    gpus.check_programs()
    paths = dict(binaries.find(reporter, GPU_PROGRAMS).paths)
    if gpus.has_nvidias_dra_driver:
        found = programs.find(programs.DRA_DRIVER, gpus.program_folder)
        if not os.access(found, os.X_OK):
            raise BinariesError(f"{found} is not executable; run: chmod +x {found}")
        paths[programs.DRA_DRIVER.file] = found
    elif gpus.stack == "dra":
        paths |= binaries.find(reporter, EXAMPLE_PROGRAMS).paths
        reporter(
            f"not here: NVIDIA's DRA driver; {programs.missing((programs.DRA_DRIVER,), gpus.program_folder)}"
        )
    for role, program in roles(gpus).items():
        reporter(f"{role}: {program}")
    return paths


def roles(gpus: Gpus) -> dict[str, str]:
    """Return the description of the program for each role in a lab with these GPUs."""
    chosen = {"NVML": f"muster's double of {LIBRARY}"}
    if gpus.stack == "device-plugin":
        version = _version("plugin", _PLUGIN_VERSION)
        chosen["device plugin"] = f"NVIDIA's {DEVICE_PLUGIN} {version}"
    elif gpus.has_nvidias_dra_driver:
        content = programs.find(programs.DRA_DRIVER, gpus.program_folder).read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:12]
        chosen["DRA driver"] = f"NVIDIA's {programs.DRA_DRIVER.file}, sha256 {digest}"
    else:
        version = _version("exampledriver", _EXAMPLE_VERSION)
        chosen["DRA driver"] = f"{EXAMPLE_DRIVER} {version} stands for NVIDIA's {programs.DRA_DRIVER.file}"
    return chosen


def _version(folder: str, module: str) -> str:
    """Return the pinned version of a Go module."""
    match = re.search(
        rf"^\s*(?:require )?{re.escape(module)} (v\S+)", (_FOLDER / folder / "go.mod").read_text(), re.M
    )
    return match[1] if match else "of unknown version"
