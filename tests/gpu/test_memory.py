"""Programs of several frameworks in a GPU fraction: they see it as the total, fail beyond it, and then continue.

An independent judge measures the real memory of each process.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from orchestrator.control.projects.memory_watch import CONTEXT_MIB
from tests.gpu.conftest import SMALL_BYTES, Findings, MakeContainer, Start, need, report_of
from tests.gpu.judge import Judge
from tests.gpu.processes import Program, Step, module
from tests.gpumemory.conftest import MIB

pytestmark = pytest.mark.gpu

ALLOCATORS: Final = {
    "native": "",
    "expandable": "expandable_segments:True",
    "async": "backend:cudaMallocAsync",
}
LEFT_BYTES: Final = 96 * MIB
"""Maximum memory that a framework leaves unused in its fraction: its granularity, and its own allocations."""
NO_ERROR: Final = "cudaSuccess"


def allocator(name: str) -> dict[str, str]:
    return {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[name]} if ALLOCATORS[name] else {}


def the(name: str, steps: list[Step]) -> Step:
    """Return the one step with this name."""
    (step,) = [step for step in steps if step["step"] == name]
    return step


def beyond_mib(steps: list[Step]) -> float:
    """Return the maximum memory, in MiB, that a process had beyond the library's count."""
    measured = [step for step in steps if step["process_bytes"] is not None]
    assert measured, "NVML does not say what the process has"
    return float(max((step["process_bytes"] - step["counted_bytes"]) / MIB for step in measured))


def is_full(step: Step, limit_bytes: int) -> None:
    """Assert that an allocation failed at the limit, and not before."""
    assert step["error"]
    assert limit_bytes - LEFT_BYTES <= step["allocated_bytes"] <= limit_bytes
    assert step["counted_bytes"] <= limit_bytes


@pytest.mark.parametrize("name", ALLOCATORS)
def test_pytorch_has_half_of_the_gpu_and_no_more(
    name: str, start: Start, judge: Judge, findings: Findings
) -> None:
    need("torch")
    half = judge.total_bytes // 2
    steps = start(name, module("torch_memory"), half, **allocator(name)).finish()
    findings.write(f"beyond-mib/torch-half-{name}", beyond_mib(steps))
    first, full, pinned = the("start", steps), the("full", steps), the("pinned", steps)
    assert (first["total_bytes"], first["properties_total_bytes"]) == (half, half)
    assert (first["backend"] == "cudaMallocAsync") == (name == "async")
    assert full["expandable"] == (name == "expandable")
    is_full(full, half)
    assert the("emptied", steps)["free_bytes"] >= half - LEFT_BYTES
    assert pinned["is_pinned"]
    assert pinned["free_bytes"] == pinned["before_bytes"]
    assert the("worked", steps)["is_right"]
    assert beyond_mib(steps) <= CONTEXT_MIB


def test_two_containers_fill_their_halves_at_once(start: Start, judge: Judge, findings: Findings) -> None:
    """The halves are halves of NVML's total, of which the driver reserves a part, and contexts use some of it
    uncounted.

    The program that fills the last half gets less by at most these: there the driver refuses, not the library.
    """
    need("torch")
    half = judge.total_bytes // 2
    programs = [start(name, module("torch_memory"), half) for name in ("one", "other")]
    full = [program.until("full") for program in programs]
    short_bytes = [half - step["allocated_bytes"] for step in full]
    reserved_bytes = int(judge.facts()["memory_v2"]["reserved"])
    findings.write(
        "two-halves",
        {"short_mib": [bytes_ / MIB for bytes_ in short_bytes], "reserved_mib": reserved_bytes / MIB},
    )
    assert all(step["error"] for step in full)
    for program in programs:
        assert the("worked", program.finish())["is_right"]
    assert max(short_bytes) <= LEFT_BYTES + reserved_bytes + 2 * CONTEXT_MIB * MIB
    assert min(short_bytes) <= LEFT_BYTES  # the first program has all of its half


UNLIMITED: Final = "torch-graphs-async-unlimited"
"""Runs without the library, and is only recorded: the effect of a refused capture on PyTorch alone."""
Ended = dict[str, tuple[list[Step], str]]
"""The steps and the error output of programs, by name. The error output is empty for a program that succeeded."""
SMALL: Final[dict[str, tuple[str, list[str], dict[str, str]]]] = {
    "driver": ("", module("driver_memory", 64), {}),
    "torch-graphs-native": ("torch", module("torch_graphs"), allocator("native")),
    "torch-graphs-expandable": ("torch", module("torch_graphs"), allocator("expandable")),
    "torch-graphs-async": ("torch", module("torch_graphs"), allocator("async")),
    UNLIMITED: ("torch", module("torch_graphs"), allocator("async")),
    "jax": ("jax", module("jax_memory"), {}),
    "cupy": ("cupy", module("cupy_memory"), {}),
    "numba": ("numba", module("numba_memory"), {}),
    "triton": ("triton", module("triton_memory"), {}),
}
RUNTIMES: Final = ("runtime-shared", "runtime-static")


@pytest.fixture(scope="session")
def ended(
    make_container: MakeContainer, judge: Judge, findings: Findings, request: pytest.FixtureRequest
) -> Ended:
    """Run all small programs at the same time, each in its own container; return their steps and error outputs."""
    commands = {name: (command, variables) for name, (_, command, variables) in SMALL.items()}
    try:
        runtimes = request.getfixturevalue("runtimes")
        commands |= {f"runtime-{kind}": ([str(path)], {}) for kind, path in runtimes.items()}
    except pytest.skip.Exception:
        runtimes = {}

    def run(name: str) -> tuple[list[Step], str]:
        command, variables = commands[name]
        limit_bytes = None if name == UNLIMITED else SMALL_BYTES
        program = Program(command, make_container(name, limit_bytes), judge, 120, variables)
        try:
            program.finish()
            words = ""
        except AssertionError as error:
            words = str(error)
        finally:
            program.stop()
        findings.write(f"small/{name}", report_of(program))
        return program.steps, words

    with ThreadPoolExecutor(len(commands)) as threads:
        return dict(zip(commands, threads.map(run, commands), strict=True))


def steps_of(name: str, ended: Ended, findings: Findings) -> list[Step]:
    """Return the steps of a small program that succeeded and saw its limit as the total."""
    if name in RUNTIMES and name not in ended:
        pytest.skip("nvcc is not installed")
    if name in SMALL and SMALL[name][0]:
        need(SMALL[name][0])
    steps, words = ended[name]
    if any(step["process_bytes"] is not None for step in steps):
        findings.write(f"beyond-mib/{name}", beyond_mib(steps))
    assert words == ""
    if name != "jax":
        assert steps[0]["total_bytes"] == SMALL_BYTES
    return steps


@pytest.mark.parametrize("name", ["native", "expandable", "async"])
def test_a_graph_that_allocates_is_counted_and_capped(name: str, ended: Ended, findings: Findings) -> None:
    steps = steps_of(f"torch-graphs-{name}", ended, findings)
    assert the("replayed", steps)["is_right"]
    assert the("replayed", steps)["free_bytes"] <= the("start", steps)["free_bytes"] - 512 * MIB
    assert max(step["counted_bytes"] for step in steps) <= SMALL_BYTES
    error = the("refused", steps)["error"]
    assert "OutOfMemoryError" in error or (name == "async" and "cudaErrorStreamCaptureInvalidated" in error)
    assert the("worked", steps)["is_right"]
    again = the("again", steps)
    assert again["is_right"] or (name == "async" and "Only one capture at a time" in again["error"])


def test_the_driver_alone_gives_the_last_byte(ended: Ended, findings: Findings) -> None:
    full = the("full", steps_of("driver", ended, findings))
    assert (full["free_bytes"], full["error"], full["counted_bytes"]) == (0, 2, SMALL_BYTES)


def test_jax_takes_three_quarters_of_its_part(ended: Ended, findings: Findings) -> None:
    steps = steps_of("jax", ended, findings)
    assert 0.7 * SMALL_BYTES <= the("start", steps)["preallocated_bytes"] <= 0.75 * SMALL_BYTES
    assert "RESOURCE_EXHAUSTED" in the("full", steps)["error"]
    assert the("start", steps)["is_right"]
    assert the("worked", steps)["is_right"]
    assert max(step["counted_bytes"] for step in steps) <= SMALL_BYTES


@pytest.mark.parametrize("name", ["numba", "triton"])
def test_a_framework_is_refused_at_its_limit_and_works_on(
    name: str, ended: Ended, findings: Findings
) -> None:
    steps = steps_of(name, ended, findings)
    is_full(the("full", steps), SMALL_BYTES)
    assert the("worked", steps)["is_right"]


def test_both_pools_of_cupy_are_refused_at_the_limit(ended: Ended, findings: Findings) -> None:
    steps = steps_of("cupy", ended, findings)
    for pool in ("own", "async"):
        is_full(the(f"full-{pool}", steps), SMALL_BYTES)
        assert the(f"emptied-{pool}", steps)["free_bytes"] >= SMALL_BYTES - LEFT_BYTES
    assert the("worked", steps)["is_right"]


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_way_of_the_runtime_is_refused_at_the_limit(
    name: str, ended: Ended, findings: Findings
) -> None:
    steps = steps_of(name, ended, findings)
    heap = the("heap", steps)
    assert (heap["beyond"], heap["error"]) == ("cudaErrorMemoryAllocation", NO_ERROR)
    left = SMALL_BYTES - 256 * MIB  # without the heap of kernels
    full = [step for step in steps if step["step"] == "full"]
    assert {step["way"]: step["error"] for step in full} == dict.fromkeys(
        [step["way"] for step in full], "cudaErrorMemoryAllocation"
    )
    assert len(full) == 5
    for step in full:
        assert left - LEFT_BYTES <= step["allocated_bytes"] <= left, step
    for step in steps:
        if step["step"] == "emptied":
            assert step["error"] == NO_ERROR
            assert step["free_bytes"] >= left - LEFT_BYTES, step


@pytest.mark.parametrize("name", [*(name for name in SMALL if name != UNLIMITED), *RUNTIMES])
def test_memory_of_a_process_beside_its_fraction_is_within_the_allowance_of_the_watch(
    name: str, ended: Ended, findings: Findings
) -> None:
    assert beyond_mib(steps_of(name, ended, findings)) <= CONTEXT_MIB


AS_IN_A_CONTAINER: Final = """
set -e
mount -t tmpfs tmpfs "$1"
for directory in etc run; do
  mkdir -p "$1/$directory/upper" "$1/$directory/work"
  layers="lowerdir=/$directory,upperdir=$1/$directory/upper,workdir=$1/$directory/work"
  mount -t overlay overlay -o "$layers" "/$directory" || exit 77
done
mkdir -p /etc/muster/gpu-memory /run/muster/gpu-memory
echo "$2 $3" > /etc/muster/gpu-memory/limits
echo "$4" > /etc/ld.so.preload
shift 4
exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount over /etc in a namespace of its own")
def test_the_files_of_the_contract_are_enough(
    start: Start, make_container: MakeContainer, judge: Judge, tmp_path: Any
) -> None:
    library = make_container("files").library
    quarter = judge.total_bytes // 4
    command = [
        "unshare", "--mount", "sh", "-c", AS_IN_A_CONTAINER, "sh",
        str(tmp_path), judge.uuid, str(quarter), str(library), *module("driver_memory", 512),
    ]  # fmt: skip
    program = start("files", command, None)
    first = program.next()
    if first is None and "77:" in program.end()[:8]:
        pytest.skip("no overlay over /etc here")
    assert first is not None, program.end()
    assert first["total_bytes"] == quarter
    assert the("full", program.finish())["error"] == 2
