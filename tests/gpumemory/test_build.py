"""gpumemory/Makefile: the library's requirements of a container; two compilers and two sanitizers find no fault."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.gpumemory.conftest import GIB, SANITIZE, SOURCES, Machine, build_library, compiler, uuid
from tests.gpumemory.scenarios import LIMIT
from tests.gpumemory.test_hooks import DRIVER_HOOKS, LINES
from tests.gpumemory.test_processes import RACE, THREADS

pytestmark = pytest.mark.lab  # compiled code is tested once, not with every Python

OLDEST_GLIBC: Final = (2, 17)  # that of CentOS 7, the oldest in images with CUDA 11 or newer
COMPILERS: Final = ["gcc", "clang"]


def tool(*arguments: str) -> str:
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", COMPILERS)
def test_the_library_runs_with_an_old_c_library_and_exports_its_hooks_alone(
    name: str, tmp_path: Path
) -> None:
    library = build_library(tmp_path, cc=compiler(name))
    symbols = tool("objdump", "-T", str(library))
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert versions
    assert max(versions) <= OLDEST_GLIBC
    needed = re.findall(r"NEEDED +(\S+)", tool("objdump", "-p", str(library)))
    assert needed == ["libc.so.6"]
    exported = set(re.findall(r" T (\w+)$", tool("nm", "-D", "--defined-only", str(library)), re.M))
    hooks = {words.split(",")[0] for _, words in LINES}
    assert exported == hooks | {"dlsym", "dlvsym"}


def test_two_builds_in_two_folders_are_the_same_bytes(tmp_path: Path) -> None:
    one = build_library(tmp_path / "one", cc=compiler("cc")).read_bytes()
    shutil.copytree(SOURCES, tmp_path / "sources", ignore=shutil.ignore_patterns("build"))
    subprocess.run(["make", "-s", "-C", str(tmp_path / "sources"), f"OUT={tmp_path / 'two'}"], check=True)
    assert (tmp_path / "two" / "libmuster-gpu-memory.so").read_bytes() == one


def sanitized(machine: Machine, name: str, directory: Path) -> Machine:
    """Return the machine with a library that ends the program at the first memory or arithmetic fault."""
    runtime, flag = {"gcc": ("libasan.so", ""), "clang": ("libclang_rt.asan-x86_64.so", "-shared-libasan")}[
        name
    ]
    found = Path(tool(compiler(name), f"-print-file-name={runtime}").strip())
    if not found.is_absolute():
        pytest.skip(f"{name} has no {runtime} here: libclang-rt-dev in Debian")
    flags = f"{SANITIZE} -fsanitize=address,undefined {flag}"
    library = build_library(directory, cc=compiler(name), flags=flags)
    return replace(machine, library=Path(f"{found.resolve()}:{library}"))


@pytest.mark.parametrize("name", COMPILERS)
def test_sanitizers_find_nothing(name: str, machine: Machine, tmp_path: Path) -> None:
    checked = sanitized(machine, name, tmp_path / "library")
    options = {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0", "CUDA_BY_NAME": "1"}
    container = checked.container("hooks", {uuid(0): LIMIT}, **options)
    container.run("-m", "tests.gpumemory.scenarios", ",".join(DRIVER_HOOKS), str(container.state))
    checked.container("threads", {uuid(0): GIB}, **options).run("-c", THREADS)
    process = checked.container("race", {uuid(0): GIB}, **options).start(["-c", RACE, "1", "300"])
    _, errors = process.communicate("go\n")
    assert process.returncode == 0, errors


def test_the_sanitized_library_does_check(machine: Machine, tmp_path: Path) -> None:
    """A deliberate fault: an array that the driver would read is shorter than its layout."""
    shutil.copytree(SOURCES, tmp_path / "sources", ignore=shutil.ignore_patterns("build"))
    limits = tmp_path / "sources" / "limits.c"
    text = limits.read_text()
    assert text.count("digits == 2 * UUID_BYTES) return 0;") == 1
    limits.write_text(text.replace("digits == 2 * UUID_BYTES) return 0;", "digits == 400) return 0;"))
    runtime = Path(tool(compiler("gcc"), "-print-file-name=libasan.so").strip()).resolve()
    flags = f"CFLAGS={SANITIZE} -fsanitize=address,undefined"
    subprocess.run(
        ["make", "-s", "-C", str(tmp_path / "sources"), f"OUT={tmp_path}", "CC=gcc", flags], check=True
    )
    faulty = replace(machine, library=Path(f"{runtime}:{tmp_path / 'libmuster-gpu-memory.so'}"))
    options = {"ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0", "CUDA_BY_NAME": "1"}
    container = faulty.container("one", {uuid(0) + "0" * 100: GIB}, **options)
    errors = container.start(["-m", "tests.gpumemory.scenarios", "cuMemAlloc_v2", "."]).communicate()[1]
    assert "runtime error" in errors or "AddressSanitizer" in errors
