"""The library compared with NVIDIA's headers and runtime: every way to allocate has a hook, or a reason against one."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.gpumemory.conftest import MIB, SOURCES, Machine, compiler, nvidia_file, uuid
from tests.gpumemory.test_hooks import DRIVER

HEADER: Final = "cu13/include/cuda.h"
TYPEDEFS: Final = "cu13/include/cudaTypedefs.h"
RUNTIME_THAT_RUNS: Final = "cuda_runtime/lib/libcudart.so.11.0"
NEWEST_RUNTIME: Final = "cu13/lib/libcudart.so.13"

MAY_ALLOCATE: Final = re.compile(
    r"Alloc|Create|Import|Open|Retain|Load(?!ing)|AddNode|AddMem|SetLimit|Bind(Mem|Addr)|Reserve|MapArray|Map$|HostRegister"
    r"|Instantiate|MemPool$"
)
CONTEXT: Final = (
    "a context is the driver's, some hundred MiB of no fixed size; the agent sees it from outside"
)
CODE: Final = "code and its variables are as large as the file says; the agent sees them from outside"
HOST: Final = "memory of the host"
COUNTED_ELSEWHERE: Final = "the process that allocated it counts it; twice would be too much"
NO_MEMORY: Final = "allocates no memory of the device that a program could fill"
MAPPED: Final = "shows memory that cuMemCreate counted in another place"
WITHOUT_A_HOOK: Final = {
    **dict.fromkeys(
        ["cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuDevicePrimaryCtxRetain", "cuGreenCtxCreate"],
        CONTEXT,
    ),
    **dict.fromkeys(
        ["cuLibraryLoadData", "cuLibraryLoadFromFile", "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx",
         "cuModuleLoadFatBinary", "cuFuncLoad", "cuFuncIsLoaded", "cuLinkCreate"],
        CODE,
    ),
    **dict.fromkeys(["cuMemAllocHost", "cuMemHostAlloc", "cuMemHostRegister"], HOST),
    **dict.fromkeys(
        ["cuIpcOpenMemHandle", "cuMemImportFromShareableHandle", "cuMemPoolImportPointer", "cuLogicalEndpointImport"],
        COUNTED_ELSEWHERE,
    ),
    **dict.fromkeys(
        ["cuMulticastBindAddr", "cuMulticastBindAddr_v2", "cuMulticastBindMem", "cuMulticastBindMem_v2",
         "cuMulticastCreate", "cuMemMapArrayAsync", "cuLogicalEndpointBindAddr", "cuLogicalEndpointBindMem",
         "cuLogicalEndpointCreate", "cuLogicalEndpointIdReserve", "cuMemAddressReserve"],
        MAPPED,
    ),
    **dict.fromkeys(
        ["cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", "cuDeviceSetMemPool", "cuMemSetMemPool"],
        "a pool is learnt when it first gives memory",
    ),
    **dict.fromkeys(
        ["cuEventCreate", "cuGraphAddMemFreeNode", "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphCreate",
         "cuGraphConditionalHandleCreate", "cuGraphMemAllocNodeGetParams", "cuGraphRetainUserObject",
         "cuGreenCtxStreamCreate", "cuImportExternalSemaphore", "cuIpcOpenEventHandle", "cuMemGetAllocationGranularity",
         "cuMemGetAllocationPropertiesFromHandle", "cuStreamCreate", "cuStreamCreateWithPriority", "cuSurfObjectCreate",
         "cuTensorMapSetAllocationClass", "cuTexObjectCreate", "cuTexRefCreate", "cuUserObjectCreate",
         "cuUserObjectRetain"],
        NO_MEMORY,
    ),
}  # fmt: skip


def test_every_function_that_may_allocate_has_a_hook_or_a_reason() -> None:
    functions = set(re.findall(r"CUDAAPI (cu\w+)\(", nvidia_file(HEADER).read_text()))
    candidates = {name for name in functions if MAY_ALLOCATE.search(name)}
    hooked = {words[0] for words in DRIVER} | {words[1] for words in DRIVER}
    assert len(functions) > 500
    assert candidates - hooked == set(WITHOUT_A_HOOK)


def test_every_form_of_a_function_has_a_hook_for_its_first_version() -> None:
    typedefs = nvidia_file(TYPEDEFS).read_text()
    forms = set(re.findall(r"\bPFN_(cu\w+?)_v(\d{4,5})(_ptsz)?\)", typedefs))
    ours = {
        (request, version, "_ptsz" if per_thread == "1" else "") for _, request, version, per_thread in DRIVER
    }
    requests = {request for _, request, _, _ in DRIVER}
    assert {form for form in forms if form[0] in requests} == ours


def test_the_layouts_are_those_of_the_header(tmp_path: Path) -> None:
    command = [
        compiler("cc"),
        "-std=gnu11",
        "-fsyntax-only",
        f"-I{SOURCES}",
        f"-I{nvidia_file(HEADER).parent}",
    ]
    subprocess.run([*command, str(Path(__file__).parent / "layouts.c")], check=True)


COUNT_DEVICES: Final = (
    "import ctypes, sys; ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))"
)


@pytest.mark.parametrize(
    ("runtime", "version", "at_least"), [(RUNTIME_THAT_RUNS, 11010, 300), (NEWEST_RUNTIME, 13050, 350)]
)
def test_all_that_the_runtime_asks_for_to_allocate_has_a_hook(
    runtime: str, version: int, at_least: int, machine: Machine, tmp_path: Path
) -> None:
    requested = tmp_path / "asked"
    variables = {"CUDA_DOUBLE_ASKED": str(requested), "CUDA_DOUBLE_VERSION": str(version)}
    container = replace(machine.container("one", {uuid(0): MIB}, **variables), library=None)
    container.runs(
        "-c", COUNT_DEVICES, str(nvidia_file(runtime))
    )  # newer versions end where they ask for the driver's version
    names = {line.split()[0] for line in requested.read_text().splitlines()}
    assert len(names) >= at_least
    hooked = {words[1] for words in DRIVER}
    not_in_the_header = {  # contexts of OpenGL and VDPAU, and partitions of a device's processors
        "cuGLCtxCreate", "cuVDPAUCtxCreate", "cuSubgridCreate", "cuSubgridWorkerGridCreate", "cuSubgridWorksetCreate"
    }  # fmt: skip
    candidates = {name for name in names if MAY_ALLOCATE.search(name)}
    assert candidates - hooked <= set(WITHOUT_A_HOOK) | not_in_the_header


RUNTIME: Final = """
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_void_p
runtime, MIB = ctypes.CDLL(sys.argv[1]), 1 << 20
OUT_OF_MEMORY = 2

def must(answer):
    assert answer == 0, answer

def info():
    free, total = c_size_t(), c_size_t()
    must(runtime.cudaMemGetInfo(byref(free), byref(total)))
    return free.value // MIB, total.value // MIB

def allocate(size, name="cudaMalloc", *rest):
    pointer = c_void_p()
    return getattr(runtime, name)(byref(pointer), c_size_t(size), *rest), pointer

limit = int(sys.argv[2])
assert info() == (limit // MIB, limit // MIB), info()
properties = ctypes.create_string_buffer(4096)  # cudaDeviceProp: name, uuid, luid, mask, totalGlobalMem
must(runtime.cudaGetDeviceProperties(properties, 0))
assert c_size_t.from_buffer(properties, 288).value == limit
answer, everything = allocate(limit)
must(answer)
assert info()[0] == 0
assert allocate(1)[0] == OUT_OF_MEMORY
must(runtime.cudaFree(everything))
assert allocate(limit + 1)[0] == OUT_OF_MEMORY
for name, rest in (("cudaMalloc", ()), ("cudaMallocManaged", (1,)), ("cudaMallocAsync", (None,))):
    answer, pointer = allocate(100 * MIB, name, *rest)
    assert answer == 0, (name, answer)
    assert info()[0] == limit // MIB - 100, name
    must(runtime.cudaFree(pointer) if name != "cudaMallocAsync" else runtime.cudaFreeAsync(pointer, None))
    must(runtime.cudaDeviceSynchronize())
    assert info()[0] == limit // MIB, name
allocate(100 * MIB)
must(runtime.cudaDeviceReset())
assert info()[0] == limit // MIB
print("ok")
"""


def test_the_real_runtime_sees_and_gets_half_of_a_gpu(machine: Machine) -> None:
    node_total = 32510 * MIB  # the memory of a V100 with 32 GiB
    half = node_total // 2
    runtime = str(nvidia_file(RUNTIME_THAT_RUNS))
    container = machine.container("one", {uuid(0): half}, CUDA_DOUBLE_MEMORY=str(node_total))
    assert half == 16255 * MIB
    assert container.run("-c", RUNTIME, runtime, str(half)).strip() == "ok"
