"""Builds the library that limits GPU memory and a double of libcuda, and runs Python programs that load both."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import util
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "gpumemory"
DOUBLE: Final = Path(__file__).parent / "libcuda_double.c"
LIBRARY: Final = "libmuster-gpu-memory.so"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
SANITIZE: Final = "-O1 -g -DMUSTER_WITHOUT_DLSYM -fno-sanitize-recover=all -fno-omit-frame-pointer"


def uuid(device: int) -> str:
    """Return the UUID of a device of the double. The double of NVML has the same UUIDs."""
    return f"GPU-00000100-0000-0000-0000-{device:012x}"


def compiler(name: str) -> str:
    """Return a C compiler's path, or skip the test."""
    path = shutil.which(name) or shutil.which(f"{name}-14")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def build_library(directory: Path, *, cc: str, flags: str = "-O2") -> Path:
    """Build the library as the image does, and return it."""
    subprocess.run(
        ["make", "-s", "-C", str(SOURCES), f"OUT={directory}", f"CC={cc}", f"CFLAGS={flags}"], check=True
    )
    return directory / LIBRARY


def build_double(directory: Path) -> Path:
    """Build the double of libcuda, and return its directory."""
    directory.mkdir()
    names = re.findall(r"^EXPORT CUresult (\w+)\(", DOUBLE.read_text(), re.M)
    (directory / "names.h").write_text("".join(f"FUNCTION({name})\n" for name in sorted(set(names))))
    command = [
        compiler("cc"), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden",
        "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1", f"-I{directory}", "-o", str(directory / "libcuda.so.1"),
        str(DOUBLE), "-lpthread",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return directory


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("library"), cc=compiler("cc"))


@pytest.fixture(scope="session")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_double(tmp_path_factory.mktemp("double") / "lib")


@dataclass
class Container:
    """The environment of the processes in one container: memory limits, the library's state, and the GPUs."""

    directory: Path
    library: Path | None
    double: Path
    limits: Mapping[str, int]
    machine: Path
    variables: dict[str, str] = field(default_factory=dict)

    @cached_property
    def environment(self) -> dict[str, str]:
        state = self.directory / "state"
        state.mkdir(parents=True)
        limits = self.directory / "limits"
        limits.write_text("".join(f"{device} {bytes_}\n" for device, bytes_ in self.limits.items()))
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "LD_LIBRARY_PATH": str(self.double),
            "CUDA_DOUBLE_STATE": str(self.machine),
            "MUSTER_GPU_MEMORY_LIMITS": str(limits),
            "MUSTER_GPU_MEMORY_STATE": str(state),
        }
        return environment | ({"LD_PRELOAD": str(self.library)} if self.library else {}) | self.variables

    @property
    def state(self) -> Path:
        return Path(self.environment["MUSTER_GPU_MEMORY_STATE"])

    def start(self, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[str]:
        """Start Python with these arguments."""
        return subprocess.Popen(
            [sys.executable, "-P", *arguments], env=self.environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=pass_fds,
        )  # fmt: skip

    def run(self, *arguments: str) -> str:
        """Run Python to its end, and return its output."""
        process = self.start(arguments)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, output + errors
        return output

    def runs(self, *arguments: str) -> bool:
        """Return whether Python succeeds with these arguments."""
        process = self.start(arguments)
        process.communicate(timeout=120)
        return process.returncode == 0


@dataclass
class Machine:
    """A machine with the GPUs of the double, and containers on it."""

    directory: Path
    library: Path
    double: Path

    def container(self, name: str, limits: Mapping[str, int], **variables: str) -> Container:
        """Return a container with these limits, by UUID of the device."""
        return Container(
            self.directory / name, self.library, self.double, limits, self.directory / "machine", variables
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, built: Path, double: Path) -> Machine:
    return Machine(tmp_path, built, double)


def nvidia_file(path: str) -> Path:
    """Return a file in NVIDIA's wheels; skip the test without it."""
    found = util.find_spec("nvidia")
    for place in (found.submodule_search_locations or []) if found else []:
        if (Path(place) / path).exists():
            return Path(place) / path
    pytest.skip(f"nvidia/{path} is not installed: it comes with the dependency group `cuda`")
