"""The output of NVIDIA's own program with and without the library, and facts about this machine."""

import os
import platform
import subprocess
from typing import Final

import pytest

from tests.gpu.conftest import DRIVER_PROGRAMS, Findings, MakeContainer, tool
from tests.gpu.judge import Judge
from tests.gpu.processes import PYTHON

pytestmark = pytest.mark.gpu

QUERY: Final = ("--query-gpu=memory.total", "--format=csv,noheader,nounits")
MIB: Final = 1 << 20
VERSIONS: Final = """
import importlib.metadata as found
for name in ("torch", "torchvision", "jax", "cupy-cuda13x", "numba", "numba-cuda", "triton", "nvidia-ml-py", "pytest"):
    try:
        print(name, found.version(name))
    except found.PackageNotFoundError:
        print(name, "-")
"""


def output(*command: str, environment: dict[str, str] | None = None) -> str:
    """Return the output of a program, even if it failed."""
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
    return ended.stdout + ended.stderr


def test_the_facts_of_this_machine_are_written(judge: Judge, findings: Findings) -> None:
    program = tool("nvidia-smi", DRIVER_PROGRAMS)
    libraries = output("ldconfig", "-p").splitlines(keepends=True)
    texts = {
        "nvidia-smi": output(program),
        "nvidia-smi -q": output(program, "-q"),
        "ldconfig": "".join(line for line in libraries if "nvidia" in line or "cuda" in line),
        "versions": output(PYTHON, "-P", "-c", VERSIONS),
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "") + "\n",
    }
    (findings.directory / "facts.txt").write_text(
        "".join(f"== {name}\n{text}\n" for name, text in texts.items())
    )
    findings.write(
        "machine", {"kernel": platform.release(), "glibc": platform.libc_ver()[1], "python": PYTHON}
    )
    assert judge.driver_version in texts["nvidia-smi -q"]


def test_nvidia_smi_shows_the_part_under_the_library(
    judge: Judge, findings: Findings, make_container: MakeContainer
) -> None:
    program = tool("nvidia-smi", DRIVER_PROGRAMS)
    half = judge.total_bytes // 2
    half_mib = (half + MIB // 2) // MIB  # nvidia-smi rounds to the nearest MiB
    limited, free = (make_container("smi", limit).environment for limit in (half, None))
    shown = output(program, environment=limited)
    totals = [output(program, *QUERY, environment=environment).split() for environment in (limited, free)]
    findings.write("nvidia-smi", {"totals_mib": totals, "under_the_library": shown.splitlines()})
    assert totals == [[str(half_mib)], [str((judge.total_bytes + MIB // 2) // MIB)]]
    assert f"{half_mib}MiB" in shown
