"""gpumemory/hooks.h: every hook has its effect however it is looked up, and without it a test fails."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.gpumemory.conftest import GIB, SOURCES, Machine, uuid
from tests.gpumemory.scenarios import LIMIT, SCENARIOS

pytestmark = pytest.mark.lab  # compiled code is tested once, not with every Python

LINES: Final = re.findall(r"^(DRIVER|MANAGEMENT)\(([^)]*)\)$", (SOURCES / "hooks.h").read_text(), re.M)
DRIVER: Final = [[word.strip() for word in words.split(",")] for kind, words in LINES if kind == "DRIVER"]
DRIVER_HOOKS: Final = [words[0] for words in DRIVER]


def test_every_hook_of_the_driver_has_a_scenario() -> None:
    assert sorted(SCENARIOS) == sorted(DRIVER_HOOKS)


@pytest.mark.parametrize("hook", DRIVER_HOOKS)
def test_the_hook_counts_caps_and_answers(hook: str, machine: Machine) -> None:
    container = machine.container("one", {uuid(0): LIMIT})
    container.run("-m", "tests.gpumemory.scenarios", hook, str(container.state))


@pytest.mark.rare  # a defect for every hook shows whether the tests above can fail
@pytest.mark.parametrize("hook", DRIVER_HOOKS)
def test_without_the_hook_its_scenario_fails(hook: str, machine: Machine, tmp_path: Path) -> None:
    content = machine.library.read_bytes()
    name = f"\0{hook}\0".encode()
    assert content.count(name) >= 1
    mutant = tmp_path / machine.library.name
    mutant.write_bytes(content.replace(name, name.replace(b"\0cu", b"\0xu")))
    container = replace(machine, library=mutant).container("one", {uuid(0): LIMIT})
    assert not container.runs("-m", "tests.gpumemory.scenarios", hook, str(container.state))


LOOK_UPS: Final = """
import ctypes, sys
from tests.gpumemory.cuda import Cuda
from tests.gpumemory.symbols import address_in
cuda, preloaded = Cuda(), ctypes.CDLL(None)
for line in sys.stdin:
    name, request, version, per_thread = line.split()
    ours = ctypes.cast(getattr(preloaded, name), ctypes.c_void_p).value
    by_dlsym = ctypes.cast(getattr(cuda.driver, name), ctypes.c_void_p).value
    by_request = cuda.looked_up(request, int(version), 2 if per_thread == "1" else 0)
    assert ours == by_dlsym == by_request != address_in("libcuda.so", name), line
assert cuda.looked_up("cuGraphInstantiate", 12000) == cuda.looked_up("cuGraphInstantiateWithFlags", 12000)
"""


def test_a_hook_is_the_result_of_dlsym_and_cu_get_proc_address(machine: Machine) -> None:
    process = machine.container("one", {uuid(0): GIB}).start(["-c", LOOK_UPS])
    _, errors = process.communicate("".join(f"{' '.join(words)}\n" for words in DRIVER), timeout=60)
    assert process.returncode == 0, errors


def test_direct_calls_are_counted_and_other_symbols_are_found_as_their_callers_see_them(
    machine: Machine, tmp_path: Path
) -> None:
    program = tmp_path / "caller"
    libraries = [f"-L{machine.double}", "-l:libcuda.so.1", "-ldl"]
    subprocess.run(
        ["cc", "-o", str(program), str(Path(__file__).parent / "caller.c"), *libraries], check=True
    )
    environment = machine.container("one", {uuid(0): GIB}).environment
    answer = subprocess.run(
        [str(program)], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert answer.split() == ["2", *["1"] * 6]


def test_a_program_without_the_driver_finds_none(machine: Machine) -> None:
    find = "from ctypes import CDLL; print(hasattr(CDLL(None), 'cuMemAlloc_v2'), hasattr(CDLL(None), 'cos'))"
    assert machine.container("one", {uuid(0): GIB}).run("-c", find).split() == ["False", "True"]
