"""gpumemory/limits.c: the valid contents of the file of limits; with an invalid file, nothing is allowed."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.gpumemory.conftest import GIB, MIB, Container, Machine, uuid

SHOW: Final = """
from ctypes import byref, c_uint64
from tests.gpumemory.cuda import Cuda
cuda = Cuda()
print(*cuda.info(), cuda.call("cuMemAlloc_v2", byref(c_uint64()), 1))
"""


def show(container: Container) -> list[int]:
    """Return the free memory and the total that the container sees, and the answer to an allocation of one byte."""
    return [int(word) for word in container.run("-c", SHOW).split()]


def written(machine: Machine, text: str) -> Container:
    container = machine.container("one", {})
    Path(container.environment["MUSTER_GPU_MEMORY_LIMITS"]).write_text(text)
    return container


@pytest.mark.parametrize(
    "text",
    [
        f"{uuid(0)} {GIB}",
        f"# half\n\n  {uuid(0)}\t{GIB}  \r\n",
        f"* 5\n{uuid(0)} {GIB}\n",
        f"{uuid(1)} 5\n* {GIB}\n",
        f"{uuid(0).upper().replace('GPU-', 'MIG-')} {GIB}\n",
    ],
)
def test_a_line_is_a_device_and_bytes(text: str, machine: Machine) -> None:
    assert show(written(machine, text)) == [GIB, GIB, 0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        f"{uuid(0)}\n",
        f"{uuid(0)} 1Gi\n",
        f"{uuid(0)} -1\n",
        f"{uuid(0)} {1 << 64}\n",
        f"{uuid(0)} {GIB} {GIB}\n",
        f"{uuid(0)}0 {GIB}\n",
        f"{uuid(0)[:-1]} {GIB}\n",
        f"0 {GIB}\n",
        f"{uuid(0)} {GIB}\nnonsense\n",
        f"{uuid(0)} {GIB}\n" * 17,
        f"{uuid(0)} {GIB}\n" + "#" * 70000,
    ],
)
def test_nothing_is_allowed_where_a_line_is_wrong_or_none_is_there(text: str, machine: Machine) -> None:
    container = written(machine, text)
    assert show(container) == [0, 0, 2]
    assert "no device may be used" in container.start(["-c", SHOW]).communicate()[1]


def test_a_file_that_is_named_and_not_there_allows_nothing(machine: Machine) -> None:
    container = written(machine, "")
    Path(container.environment["MUSTER_GPU_MEMORY_LIMITS"]).unlink()
    assert show(container) == [0, 0, 2]


def test_without_a_file_every_call_is_passed_through(machine: Machine) -> None:
    container = machine.container("one", {})
    del container.environment["MUSTER_GPU_MEMORY_LIMITS"]
    assert show(container) == [32 * GIB, 32 * GIB, 0]
    assert not list(container.state.iterdir())


def test_a_limit_above_the_memory_of_the_device_changes_no_total(machine: Machine) -> None:
    assert show(machine.container("one", {uuid(0): 64 * GIB})) == [32 * GIB, 32 * GIB, 0]


def test_nothing_is_allowed_where_processes_cannot_be_counted(machine: Machine) -> None:
    container = machine.container("one", {uuid(0): GIB})
    container.state.rmdir()
    assert show(container)[1:] == [GIB, 2]
    assert "processes cannot be counted" in container.start(["-c", SHOW]).communicate()[1]


def test_the_count_is_not_followed_through_a_link(machine: Machine, tmp_path: Path) -> None:
    container = machine.container("one", {uuid(0): GIB})
    (tmp_path / "elsewhere").write_bytes(b"content")
    (container.state / "usage.1").symlink_to(tmp_path / "elsewhere")
    assert show(container)[2] == 2
    assert (tmp_path / "elsewhere").read_bytes() == b"content"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_processes_of_several_users_share_one_count(machine: Machine) -> None:
    container = machine.container("one", {uuid(0): GIB})
    container.state.chmod(0o1777)
    hold = f"import os; os.umask(0o077); from tests.gpumemory.cuda import Cuda; Cuda().allocate({MIB})"
    container.run("-c", hold)
    assert (container.state / "usage.1").stat().st_mode & 0o777 == 0o666
