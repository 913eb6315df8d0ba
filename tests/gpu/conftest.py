"""This machine's GPU, the library built here, programs under it, and the file for the results.

`make test-gpu` runs these tests; without a GPU they are skipped. MUSTER_GPU_PYTHON names the Python with PyTorch and
other frameworks, MUSTER_GPU_OUT the folder for the results, MUSTER_GPU_LIBRARY a built library.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from tests.gpu.judge import Judge
from tests.gpu.processes import PYTHON, PYTHON_VARIABLE, ROOT, Container, Program, has_module
from tests.gpumemory.conftest import GIB, build_library, compiler

OUT: Final = Path(os.environ.get("MUSTER_GPU_OUT") or ROOT / "build" / "gpu")
TOOLKIT: Final = Path("/usr/local/cuda/bin")
DRIVER_PROGRAMS: Final = Path("/usr/local/nvidia/bin")
SMALL_BYTES: Final = 4 * GIB
PROGRAM_SECONDS: Final = 90.0


class Findings:
    """The results in one file, which is rewritten with each result, so that an interrupted run keeps its results."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._pieces: dict[str, Any] = {}
        self._lock = threading.Lock()

    def write(self, name: str, piece: Any) -> None:
        """Write a result under its name."""
        with self._lock:
            self._pieces[name] = piece
            text = json.dumps(self._pieces, indent=1, default=str)
            (self.directory / "findings.json").write_text(text + "\n")


@pytest.fixture(scope="session")
def judge() -> Judge:
    """Return NVML as the judge; skip the test on a machine without a GPU."""
    try:
        return Judge.open()
    except pynvml.NVMLError as error:
        pytest.skip(f"this machine has no GPU that can be used: {error}")


@pytest.fixture(scope="session")
def findings(judge: Judge) -> Findings:
    written = Findings(OUT)
    written.write("gpu", judge.facts())
    return written


@pytest.fixture(scope="session")
def library(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if built := os.environ.get("MUSTER_GPU_LIBRARY"):
        return Path(built)
    return build_library(tmp_path_factory.mktemp("library"), cc=compiler("cc"))


MakeContainer = Callable[..., Container]
Start = Callable[..., Program]


@pytest.fixture(scope="session")
def make_container(library: Path, judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> MakeContainer:
    """Return a function that makes a container from its name and its limit in bytes (None for no library)."""

    def make(name: str, limit_bytes: int | None = SMALL_BYTES) -> Container:
        return Container(tmp_path_factory.mktemp(name), library, judge.uuid, limit_bytes)

    return make


@pytest.fixture
def start(
    request: pytest.FixtureRequest, make_container: MakeContainer, judge: Judge, findings: Findings
) -> Iterator[Start]:
    """Return a function that starts a program in a new container. Its outcome is always written."""
    programs: list[tuple[str, Program]] = []

    def start_program(
        name: str,
        command: Sequence[str],
        limit_bytes: int | None,
        seconds: float = PROGRAM_SECONDS,
        **variables: str,
    ) -> Program:
        program = Program(command, make_container(name, limit_bytes), judge, seconds, variables)
        programs.append((name, program))
        return program

    yield start_program
    for _, program in programs:
        program.stop()
    for name, program in programs:
        findings.write(f"{request.node.name}/{name}", report_of(program))


def report_of(program: Program) -> dict[str, Any]:
    """Return the written result of a program that has ended."""
    return {
        "limit_bytes": program.container.limit_bytes,
        "steps": program.steps,
        "end": program.end(),
    }


def tool(name: str, *directories: Path) -> str:
    """Return the path of a program, or skip the test."""
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, directories)])
    path = shutil.which(name, path=places)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def need(package: str) -> None:
    """Skip the test if the programs' Python lacks a package."""
    if not has_module(package):
        pytest.skip(f"{PYTHON} has no {package}: {PYTHON_VARIABLE} names a Python that has it")


@pytest.fixture(scope="session")
def runtimes(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build a program with the shared and one with the static library of NVIDIA's runtime; return their paths."""
    nvcc = tool("nvcc", TOOLKIT)
    directory = tmp_path_factory.mktemp("runtime")
    libraries = Path(nvcc).resolve().parents[1] / "lib64"
    built = {}
    for kind in ("shared", "static"):
        built[kind] = directory / kind
        command = [nvcc, "-O1", "-cudart", kind, "-Xlinker", f"-rpath={libraries}", "-o", str(built[kind])]
        subprocess.run([*command, str(Path(__file__).parent / "runtime.c")], check=True, timeout=120)
    return built
