"""The library as in a container: /etc/ld.so.preload, with the file of limits and the count at their own paths."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.gpumemory.conftest import GIB, ROOT, Machine, uuid

CONTAINER: Final = r"""
set -e
for folder in etc run; do
    mkdir -p "$1/$folder/upper" "$1/$folder/work"
    layers="lowerdir=/$folder,upperdir=$1/$folder/upper,workdir=$1/$folder/work"
    mount -t overlay overlay -o "$layers" /$folder || exit 77
done
mkdir -p /etc/muster/gpu-memory /run/muster/gpu-memory
echo "$2" > /etc/muster/gpu-memory/limits
echo "$3" > /etc/ld.so.preload
shift 3
exec env -i "$@"
"""
NO_OVERLAY: Final = 77


@pytest.mark.lab
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, for a mount namespace"
)
def test_the_file_of_the_container_counts_for_any_environment(machine: Machine, tmp_path: Path) -> None:
    show = "from tests.gpumemory.cuda import Cuda; print(*Cuda().info())"
    variables = [
        f"PYTHONPATH={ROOT}", f"LD_LIBRARY_PATH={machine.double}", f"CUDA_DOUBLE_STATE={tmp_path / 'machine'}",
        f"MUSTER_GPU_MEMORY_LIMITS={tmp_path / 'none'}", f"MUSTER_GPU_MEMORY_STATE={tmp_path}", "LD_PRELOAD=",
    ]  # fmt: skip
    command = ["unshare", "--mount", "sh", "-c", CONTAINER, "sh", str(tmp_path), f"{uuid(0)} {GIB}"]
    command += [str(machine.library), *variables, sys.executable, "-P", "-c", show]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode == NO_OVERLAY:
        pytest.skip("overlay file systems cannot be mounted here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(GIB), str(GIB)]
    assert (tmp_path / "run" / "upper" / "muster" / "gpu-memory" / "usage.1").exists()
