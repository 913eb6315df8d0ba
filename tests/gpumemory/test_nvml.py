"""gpumemory/management.c, on the lab's double of NVML."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from musterlab import programs
from musterlab.gpus import built, shown
from musterlab.gpus.models import Gpus
from tests.gpumemory.conftest import MIB, Machine, compiler, uuid
from tests.gpumemory.nvml_scenarios import TOTAL
from tests.gpumemory.test_hooks import LINES

HOOKS: Final = [words for kind, words in LINES if kind == "MANAGEMENT"]
NODE_TOTAL: Final = 32510 * MIB


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lab's double of NVML."""
    compiler("cc")
    target = tmp_path_factory.mktemp("nvml") / built.LIBRARY
    built.compile_library(sorted((Path(built.__file__).parent / "nvml").glob("*.c")), target)
    return target


@pytest.fixture
def node(machine: Machine, library: Path, tmp_path: Path) -> Machine:
    """Return the machine with the double of NVML beside that of libcuda, and a neighbour that computes on both GPUs."""
    directory = tmp_path / "lib"
    directory.mkdir()
    (directory / "libnvidia-ml.so.1").symlink_to(library)
    (directory / "libcuda.so.1").symlink_to(machine.double / "libcuda.so.1")
    shown.create(tmp_path / "gpus", Gpus("v100", 2, "device-plugin"), 1)
    with shown.changes(tmp_path / "gpus") as changes:
        for index in range(2):
            changes.set(
                index,
                {
                    "memory_total": NODE_TOTAL, "memory_reserved": 0, "utilization": 80,
                    "processes": ["4242 10240 python"],
                },
            )  # fmt: skip
    return replace(machine, double=directory)


def variables(tmp_path: Path) -> dict[str, str]:
    return {
        shown.VARIABLE: str(tmp_path / "gpus" / shown.FILE),
        "CUDA_DOUBLE_MEMORY": str(NODE_TOTAL),
    }


@pytest.mark.lab
@pytest.mark.parametrize("hook", HOOKS)
def test_the_hook_tells_the_containers_part_and_its_processes(
    hook: str, node: Machine, tmp_path: Path
) -> None:
    container = node.container("one", {uuid(0): NODE_TOTAL // 2}, **variables(tmp_path))
    assert NODE_TOTAL // 2 == TOTAL
    container.run("-m", "tests.gpumemory.nvml_scenarios", hook)


@pytest.mark.lab
@pytest.mark.parametrize("hook", HOOKS)
def test_without_the_hook_its_scenario_fails(hook: str, node: Machine, tmp_path: Path) -> None:
    mutant = tmp_path / node.library.name
    name = f"\0{hook}\0".encode()
    mutant.write_bytes(node.library.read_bytes().replace(name, name.replace(b"\0nv", b"\0xv")))
    container = replace(node, library=mutant).container("one", {uuid(0): TOTAL}, **variables(tmp_path))
    assert not container.runs("-m", "tests.gpumemory.nvml_scenarios", hook)


REOPEN: Final = """
import ctypes, _ctypes
for _ in range(3):  # programs unload NVML and load it again
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    print(memory[0] >> 20)
    _ctypes.dlclose(nvml._handle)
"""


@pytest.mark.lab
def test_nvml_may_be_unloaded_and_loaded_again(node: Machine, tmp_path: Path) -> None:
    container = node.container("one", {uuid(0): TOTAL}, **variables(tmp_path))
    assert container.run("-c", REOPEN).split() == ["16255"] * 3


@pytest.mark.lab
def test_nvidia_smi_shows_the_containers_part(machine: Machine, tmp_path: Path) -> None:
    """NVIDIA's program calls its library by a table that only NVIDIA's library and its mock have."""
    program = shutil.which("nvidia-smi", path=os.environ.get("MUSTER_NVIDIA_SMI") or None)
    needed = (programs.NVML_MOCK,)
    if program is None or programs.missing(needed):
        pytest.skip(
            "needs nvidia-smi (Debian's non-free package of that name, its folder in MUSTER_NVIDIA_SMI) and NVIDIA's "
            f"mock of NVML: {programs.missing(needed) or programs.find(*needed)}"
        )
    directory = tmp_path / "lib"
    directory.mkdir()
    (directory / "libnvidia-ml.so.1").symlink_to(programs.find(*needed))
    (directory / "libcuda.so.1").symlink_to(machine.double / "libcuda.so.1")
    memory = {"total_bytes": NODE_TOTAL, "reserved_bytes": 0, "free_bytes": NODE_TOTAL, "used_bytes": 0}
    profile = {
        "version": "1.0",
        "system": {"driver_version": "550.163.01", "num_devices": 2, "cuda_version": "12.4"},
        "device_defaults": {"name": "Tesla V100-SXM2-32GB", "architecture": "volta", "memory": memory},
        "devices": [{"index": number, "uuid": uuid(number)} for number in range(2)],
    }
    (tmp_path / "config.yaml").write_text(json.dumps(profile))  # a YAML parser reads JSON
    settings = {"MOCK_NVML_CONFIG": str(tmp_path / "config.yaml"), "CUDA_DOUBLE_MEMORY": str(NODE_TOTAL)}
    container = replace(machine, double=directory).container(
        "one", {uuid(0): TOTAL, uuid(1): MIB}, **settings
    )
    shown_ = subprocess.run(
        [program], env=container.environment, check=True, capture_output=True, text=True
    ).stdout
    assert re.findall(r"/ +(\d+)MiB", shown_) == ["16255", "1"]
