"""gpumemory/management.c, on NVIDIA's mock of NVML: where `muster lab build --gpus` has built it."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.gpumemory.conftest import MIB, Machine, compiler, uuid
from tests.gpumemory.nvml_scenarios import TOTAL
from tests.gpumemory.test_hooks import LINES

HOOKS: Final = [words for kind, words in LINES if kind == "MANAGEMENT"]
NODE_TOTAL: Final = 32510 * MIB

NOT_BUILT: Final = "NVIDIA's mock of NVML is not built here: a lab with --gpus builds it"
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "muster" / "lab"


@pytest.fixture
def mock(machine: Machine, tmp_path: Path) -> Machine:
    """The machine, with NVIDIA's mock of NVML beside the double of libcuda."""
    libraries = sorted(CACHE.glob("gpus-*/libnvidia-ml.so.*"), key=lambda path: path.stat().st_mtime)
    if not libraries:
        pytest.skip(NOT_BUILT)
    directory = tmp_path / "lib"
    directory.mkdir()
    (directory / "libnvidia-ml.so.1").symlink_to(libraries[-1])
    (directory / "libcuda.so.1").symlink_to(machine.double / "libcuda.so.1")
    memory = {"total_bytes": NODE_TOTAL, "reserved_bytes": 0, "free_bytes": NODE_TOTAL, "used_bytes": 0}
    neighbour = {"pid": 4242, "type": "C", "name": "python", "used_memory_mib": 10240, "sm_util": 80}
    profile = {
        "version": "1.0",
        "system": {"driver_version": "550.163.01", "num_devices": 2, "cuda_version": "12.4"},
        "device_defaults": {
            "name": "Tesla V100-SXM2-32GB", "architecture": "volta", "memory": memory, "processes": [neighbour],
            "bar1_memory": {"total_bytes": 32 << 30, "free_bytes": 32 << 30, "used_bytes": 0},
        },
        "devices": [{"index": number, "uuid": uuid(number)} for number in range(2)],
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(json.dumps(profile))  # JSON is YAML
    return replace(machine, double=directory)


def variables(tmp_path: Path) -> dict[str, str]:
    return {"MOCK_NVML_CONFIG": str(tmp_path / "config.yaml"), "CUDA_DOUBLE_MEMORY": str(NODE_TOTAL)}


@pytest.mark.lab
@pytest.mark.parametrize("hook", HOOKS)
def test_the_hook_tells_the_containers_part_and_its_processes(
    hook: str, mock: Machine, tmp_path: Path
) -> None:
    container = mock.container("one", {uuid(0): NODE_TOTAL // 2}, **variables(tmp_path))
    assert NODE_TOTAL // 2 == TOTAL
    container.run("-m", "tests.gpumemory.nvml_scenarios", hook)


@pytest.mark.lab
@pytest.mark.parametrize("hook", HOOKS)
def test_without_the_hook_its_scenario_fails(hook: str, mock: Machine, tmp_path: Path) -> None:
    mutant = tmp_path / mock.library.name
    name = f"\0{hook}\0".encode()
    mutant.write_bytes(mock.library.read_bytes().replace(name, name.replace(b"\0nv", b"\0xv")))
    container = replace(mock, library=mutant).container("one", {uuid(0): TOTAL}, **variables(tmp_path))
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
def test_nvml_may_be_unloaded_and_loaded_again(mock: Machine, tmp_path: Path) -> None:
    container = mock.container("one", {uuid(0): TOTAL}, **variables(tmp_path))
    assert container.run("-c", REOPEN).split() == ["16255"] * 3


@pytest.mark.lab
def test_nvidia_smi_shows_the_containers_part(mock: Machine, tmp_path: Path) -> None:
    program = shutil.which("nvidia-smi", path=os.environ.get("MUSTER_NVIDIA_SMI") or None)
    if program is None:
        pytest.skip("no nvidia-smi: Debian's non-free package of that name, its folder in MUSTER_NVIDIA_SMI")
    compiler("cc")
    environment = mock.container("one", {uuid(0): TOTAL, uuid(1): MIB}, **variables(tmp_path)).environment
    shown = subprocess.run([program], env=environment, check=True, capture_output=True, text=True).stdout
    assert re.findall(r"/ +(\d+)MiB", shown) == ["16255", "1"]
