"""Tests of each hook: `python -m tests.gpumemory.scenarios HOOK[,HOOK…] STATE-DIRECTORY`.

Runs in a process with the library, a limit of 1 GiB, and the double of libcuda. If no variable names the double's
state, it uses the driver of this machine. Fails if the hook does not exist.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Final

from tests.gpumemory.cuda import INVALID_CONTEXT, MIB, NOT_SUPPORTED, OUT_OF_MEMORY, PER_THREAD, Cuda
from tests.gpumemory.symbols import address_in, function_in
from tests.gpumemory.usage_file import counted_bytes

LIMIT: Final = 1024 * MIB
IS_DOUBLE: Final = "CUDA_DOUBLE_STATE" in os.environ
POOL_STEP: Final = 0 if IS_DOUBLE else 64 * MIB
"""Maximum memory that a pool or graph of the driver holds beyond its allocations. The sizes in this module suit the
double.
"""
IMPORTS: Final = "imports what another interface or process allocated: the double takes any description"
NEED_THE_DOUBLE: Final = {
    "cuImportExternalMemory": IMPORTS,
    "cuDestroyExternalMemory": IMPORTS,
    "cuMemPoolImportFromShareableHandle": IMPORTS,
}
"""Hooks whose scenario cannot run on a driver, with the reason."""
SCENARIOS: Final[dict[str, Callable[[], None]]] = {}

Scenario = Callable[[], None]


def scenario(*hooks: str) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Register one function for several hooks. It is called with the name of the hook."""

    def register(function: Callable[[str], None]) -> Callable[[str], None]:
        for hook in hooks:
            SCENARIOS[hook] = lambda hook=hook: function(hook)  # type: ignore[misc]
        return function

    return register


def must_be(cuda: Cuda, free_bytes: int, step: int = 0) -> None:
    """Assert the container's free memory, or at most `step` less, in the driver's answer and by an allocation of one
    byte more.
    """
    free = cuda.free_bytes()
    assert free_bytes - step <= free <= free_bytes, f"{free / MIB} MiB are free, not {free_bytes / MIB}"
    assert cuda.answer_to(free + 1) == OUT_OF_MEMORY


def must_count(cuda: Cuda, bytes_: int, step: int = POOL_STEP) -> None:
    """Assert the count in the file, or at most `step` more."""
    counted = used_by_container(cuda)
    assert bytes_ <= counted <= bytes_ + step, f"{counted / MIB} MiB are counted, not {bytes_ / MIB}"


@scenario("cuMemAlloc_v2", "cuMemFree_v2")
def allocate(hook: str) -> None:
    cuda = Cuda()
    pointer = cuda.allocate(LIMIT)
    assert cuda.call("cuMemAlloc_v2", byref(c_uint64()), 1) == OUT_OF_MEMORY
    must_be(cuda, 0)
    cuda.must("cuMemFree_v2", pointer)
    must_be(cuda, LIMIT)
    assert cuda.call("cuMemFree_v2", pointer) != 0  # freed again: an error, and nothing is counted twice
    must_be(cuda, LIMIT)


@scenario("cuMemAllocManaged")
def managed(hook: str) -> None:
    cuda = Cuda()
    pointer = c_uint64()
    assert cuda.call(hook, byref(pointer), LIMIT + 1, 1) == OUT_OF_MEMORY
    cuda.must(hook, byref(pointer), 600 * MIB, 1)
    must_be(cuda, LIMIT - 600 * MIB)
    cuda.must("cuMemFree_v2", pointer)
    must_be(cuda, LIMIT)


@scenario("cuMemAllocPitch_v2")
def pitch(hook: str) -> None:
    cuda = Cuda()
    pointer, row = c_uint64(), c_size_t()
    assert cuda.call(hook, byref(pointer), byref(row), MIB, 1025, 4) == OUT_OF_MEMORY
    assert cuda.call(hook, byref(pointer), byref(row), 1 << 62, 1 << 62, 4) == OUT_OF_MEMORY  # no overflow
    cuda.must(hook, byref(pointer), byref(row), 1000, 1000, 4)
    must_be(cuda, LIMIT - 1024 * 1000)  # rows are rounded up
    cuda.must("cuMemFree_v2", pointer)
    must_be(cuda, LIMIT)


@scenario("cuMemAlloc", "cuMemAllocPitch", "cuArrayCreate", "cuArray3DCreate")
def forms_of_32_bits(hook: str) -> None:
    cuda = Cuda()
    arguments = {
        "cuMemAlloc": (byref(c_uint()), c_uint(MIB)),
        "cuMemAllocPitch": (byref(c_uint()), byref(c_uint()), c_uint(1024), c_uint(1024), c_uint(4)),
        "cuArrayCreate": (byref(c_uint64()), None),
        "cuArray3DCreate": (byref(c_uint64()), None),
    }[hook]
    assert cuda.call(hook, *arguments) == NOT_SUPPORTED
    must_be(cuda, LIMIT)


@scenario("cuMemFree")
def free_of_32_bits(hook: str) -> None:
    cuda = Cuda()
    assert cuda.call(hook, c_uint(4096)) != 0
    assert is_ours(hook, getattr(cuda.driver, hook))


@scenario("cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemFreeAsync", "cuMemFreeAsync_ptsz")
def allocate_in_a_stream(hook: str) -> None:
    cuda = Cuda()
    suffix = "_ptsz" if hook.endswith("_ptsz") else ""
    pointer = c_uint64()
    assert cuda.call(f"cuMemAllocAsync{suffix}", byref(pointer), LIMIT + 1, None) == OUT_OF_MEMORY
    cuda.must(f"cuMemAllocAsync{suffix}", byref(pointer), 600 * MIB, None)
    assert cuda.call(f"cuMemAllocAsync{suffix}", byref(c_uint64()), 600 * MIB, None) == OUT_OF_MEMORY
    must_be(cuda, LIMIT - 600 * MIB, POOL_STEP)
    cuda.must(f"cuMemFreeAsync{suffix}", pointer, None)
    # the pool still holds the memory
    assert cuda.call("cuMemAlloc_v2", byref(c_uint64()), 600 * MIB) == OUT_OF_MEMORY
    cuda.must("cuStreamSynchronize", None)
    must_be(cuda, LIMIT)
    plain = cuda.allocate(300 * MIB)  # memory from cuMemAlloc may be freed in a stream too
    cuda.must(f"cuMemFreeAsync{suffix}", plain, None)
    must_be(cuda, LIMIT)


def make_pool(cuda: Cuda, *, place: int = 1) -> c_void_p:
    pool, properties = c_void_p(), struct.pack("iiiiQQH54x", 1, 0, place, cuda.device, 0, 0, 0)
    cuda.must("cuMemPoolCreate", byref(pool), properties)
    return pool


@scenario(
    "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo"
)  # fmt: skip
def pools(hook: str) -> None:
    cuda = Cuda()
    name = hook if hook.startswith("cuMemAlloc") else "cuMemAllocFromPoolAsync"
    pool, pointer, keep = make_pool(cuda), c_uint64(), c_uint64(1 << 62)
    # the pool does not return memory by itself
    cuda.must("cuMemPoolSetAttribute", pool, c_int(4), byref(keep))
    assert cuda.call(name, byref(pointer), LIMIT + 1, pool, None) == OUT_OF_MEMORY
    cuda.must(name, byref(pointer), 600 * MIB, pool, None)
    must_be(cuda, LIMIT - 600 * MIB, POOL_STEP)
    cuda.must("cuMemFreeAsync", pointer, None)
    cuda.must("cuStreamSynchronize", None)
    must_be(cuda, LIMIT - 600 * MIB, POOL_STEP)
    assert cuda.call("cuMemAlloc_v2", byref(c_uint64()), 600 * MIB) == OUT_OF_MEMORY
    # from memory that the pool holds: it does not grow
    cuda.must(name, byref(pointer), 500 * MIB, pool, None)
    cuda.must("cuMemFreeAsync", pointer, None)
    cuda.must("cuStreamSynchronize", None)
    cuda.must("cuMemPoolTrimTo", pool, 100 * MIB)
    must_count(cuda, 100 * MIB)
    must_be(cuda, LIMIT - 100 * MIB, POOL_STEP)
    cuda.must("cuMemPoolDestroy", pool)
    must_count(cuda, 0, step=0)
    must_be(cuda, LIMIT)
    on_host = make_pool(cuda, place=2)
    cuda.must(name, byref(pointer), 2 * LIMIT, on_host, None)
    must_be(cuda, LIMIT)


def used_by_container(cuda: Cuda) -> int:
    """Return the count in the file, before a call lets the library update it."""
    return counted_bytes(Path(sys.argv[2]), cuda.device)


@scenario("cuMemPoolImportFromShareableHandle", "cuMemGetDefaultMemPool", "cuMemGetMemPool")
def pools_of_others(hook: str) -> None:
    cuda = Cuda()
    pool, pointer = c_void_p(), c_uint64()
    if "Import" in hook:
        cuda.must(hook, byref(pool), None, c_int(1), 0)
    else:
        cuda.must(hook, byref(pool), struct.pack("ii", 2, 0), c_int(1))
    cuda.must(
        "cuMemAllocFromPoolAsync", byref(pointer), 2 * LIMIT, pool, None
    )  # memory of the host, or of another process
    must_be(cuda, LIMIT)
    if "Get" in hook:
        cuda.must(hook, byref(pool), struct.pack("ii", 1, 0), c_int(1))
        assert cuda.call("cuMemAllocFromPoolAsync", byref(pointer), LIMIT + 1, pool, None) == OUT_OF_MEMORY


@scenario(
    "cuCtxSynchronize",
    "cuCtxSynchronize_v2",
    "cuEventSynchronize",
    "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz",
)
def wait(hook: str) -> None:
    cuda = Cuda()
    pointer = c_uint64()
    # on a driver, waiting for a thread's own stream does not wait for the common stream
    suffix = "_ptsz" if hook.endswith("_ptsz") else ""
    cuda.must(f"cuMemAllocAsync{suffix}", byref(pointer), 600 * MIB, None)
    cuda.must(f"cuMemFreeAsync{suffix}", pointer, None)
    must_count(cuda, 600 * MIB)
    event = c_void_p()
    cuda.must("cuEventCreate", byref(event), c_uint(0))
    cuda.must("cuEventRecord", event, None)
    about = {"cuCtxSynchronize": [], "cuCtxSynchronize_v2": [cuda.context], "cuEventSynchronize": [event]}
    cuda.must(hook, *about.get(hook, [None]))
    must_count(cuda, 0, step=0)


@scenario("cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemRetainAllocationHandle")
def physical(hook: str) -> None:
    cuda = Cuda()
    created, again = c_uint64(), c_uint64()
    on_device, on_host, in_domain = (
        struct.pack("iiiiQ8x", 1, 0, place, number, 0) for place, number in ((1, 0), (3, 0), (6, 0x300))
    )
    assert cuda.call("cuMemCreate", byref(created), LIMIT + 1, on_device, 0) == OUT_OF_MEMORY
    assert cuda.call("cuMemCreate", byref(created), LIMIT + 1, in_domain, 0) == OUT_OF_MEMORY
    cuda.must("cuMemCreate", byref(created), 2 * LIMIT, on_host, 0)  # memory of the host does not count
    cuda.must("cuMemCreate", byref(created), 600 * MIB, on_device, 0)
    must_be(cuda, LIMIT - 600 * MIB)
    reserved = c_uint64()
    cuda.must("cuMemAddressReserve", byref(reserved), 600 * MIB, 0, 0, 0)
    address = reserved.value
    if IS_DOUBLE:
        cuda.must("cuMemMap", address, 300 * MIB, 0, created, 0)
        cuda.must("cuMemMap", address + 300 * MIB, 300 * MIB, 300 * MIB, created, 0)
    else:  # drivers accept no offset yet
        cuda.must("cuMemMap", address, 600 * MIB, 0, created, 0)
    cuda.must("cuMemRelease", created)
    must_be(cuda, LIMIT - 600 * MIB)  # memory stays as long as it is mapped
    cuda.must("cuMemRetainAllocationHandle", byref(again), c_void_p(address + 400 * MIB))
    cuda.must("cuMemUnmap", address, 600 * MIB)
    must_be(cuda, LIMIT - 600 * MIB)
    cuda.must("cuMemRelease", again)
    must_be(cuda, LIMIT)


@scenario("cuArrayCreate_v2", "cuArrayDestroy")
def array(hook: str) -> None:
    cuda = Cuda()
    made = c_void_p()
    large, requested = (struct.pack("QQiI", width, 16384, 0x20, 1) for width in (16400, 8192))
    assert cuda.call("cuArrayCreate_v2", byref(made), large) == OUT_OF_MEMORY
    cuda.must("cuArrayCreate_v2", byref(made), requested)
    must_be(cuda, LIMIT - 512 * MIB)
    cuda.must("cuArrayDestroy", made)
    must_be(cuda, LIMIT)


def array3d(width: int, height: int, depth: int, form: int, channels: int) -> bytes:
    return struct.pack("QQQiII4x", width, height, depth, form, channels, 0)


@scenario("cuArray3DCreate_v2")
def deep_array(hook: str) -> None:
    cuda = Cuda()
    made = c_void_p()
    assert cuda.call(hook, byref(made), array3d(1024, 1024, 129, 0x10, 4)) == OUT_OF_MEMORY
    cuda.must(hook, byref(made), array3d(1024, 1024, 16, 0x10, 4))
    must_be(cuda, LIMIT - 128 * MIB)
    cuda.must("cuArrayDestroy", made)
    must_be(cuda, LIMIT)


@scenario("cuMipmappedArrayCreate", "cuMipmappedArrayDestroy")
def mipmap(hook: str) -> None:
    cuda = Cuda()
    made = c_void_p()
    assert (
        cuda.call("cuMipmappedArrayCreate", byref(made), array3d(16384, 16384, 0, 0x20, 1), 2)
        == OUT_OF_MEMORY
    )
    cuda.must("cuMipmappedArrayCreate", byref(made), array3d(8192, 8192, 0, 0x20, 1), 3)
    must_be(cuda, LIMIT - (256 + 64 + 16) * MIB)
    cuda.must("cuMipmappedArrayDestroy", made)
    must_be(cuda, LIMIT)


@scenario("cuImportExternalMemory", "cuDestroyExternalMemory")
def external(hook: str) -> None:
    cuda = Cuda()
    memory = c_void_p()
    large, requested = (struct.pack("i4x16xQI64x4x", 1, size, 0) for size in (LIMIT + 1, 600 * MIB))
    assert cuda.call("cuImportExternalMemory", byref(memory), large) == OUT_OF_MEMORY
    cuda.must("cuImportExternalMemory", byref(memory), requested)
    must_be(cuda, LIMIT - 600 * MIB)
    cuda.must("cuDestroyExternalMemory", memory)
    must_be(cuda, LIMIT)


@scenario("cuCtxSetLimit")
def heap(hook: str) -> None:
    cuda = Cuda()
    assert cuda.call(hook, c_int(2), LIMIT + 1) == OUT_OF_MEMORY
    cuda.must(hook, c_int(2), 300 * MIB)
    cuda.must(hook, c_int(1), 100 * MIB)
    must_be(cuda, LIMIT - 400 * MIB)
    cuda.must(hook, c_int(2), 200 * MIB)  # the new size replaces the old one
    cuda.must(hook, c_int(0), 4096)  # the size of the stack does not count
    must_be(cuda, LIMIT - 300 * MIB)


NODE: Final = struct.Struct("iiiiQQH54xQQQQ")


def node(size: int) -> bytes:
    return NODE.pack(1, 0, 1, 0, 0, 0, 0, 0, 0, size, 0)


def address_of_node(alloc: "ctypes.Array[ctypes.c_char]") -> int:
    """Return the address that the driver wrote into the description of an allocating node."""
    return int(NODE.unpack_from(alloc.raw)[-1])


@scenario(
    "cuGraphAddMemAllocNode", "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphAddNode_v3", "cuGraphDestroy"
)
def nodes(hook: str) -> None:
    cuda = Cuda()
    graph, added = c_void_p(), c_void_p()
    cuda.must("cuGraphCreate", byref(graph), 0)

    def add(size: int) -> int:
        alloc = node(size)
        if hook == "cuGraphAddNode":
            return cuda.call(
                hook, byref(added), graph, None, 0, struct.pack("iiii", 10, 0, 0, 0) + alloc + bytes(128)
            )
        if hook in {"cuGraphAddNode_v2", "cuGraphAddNode_v3"}:
            general = struct.pack("iiii", 10, 0, 0, 0) + alloc + bytes(128)
            return cuda.call(hook, byref(added), graph, None, None, 0, general)
        return cuda.call("cuGraphAddMemAllocNode", byref(added), graph, None, 0, alloc)

    assert add(LIMIT + 1) == OUT_OF_MEMORY
    assert add(600 * MIB) == 0
    assert add(600 * MIB) == OUT_OF_MEMORY
    must_be(cuda, LIMIT - 600 * MIB)
    cuda.must("cuGraphDestroy", graph)
    must_count(cuda, 0, step=0)


@scenario(
    "cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams",
    "cuGraphInstantiateWithParams_ptsz", "cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz",
    "cuGraphExecDestroy", "cuDeviceGraphMemTrim",
)  # fmt: skip
def executables(hook: str) -> None:
    cuda = Cuda()
    graph, added, executable = c_void_p(), c_void_p(), c_void_p()
    cuda.must("cuGraphCreate", byref(graph), 0)
    alloc = ctypes.create_string_buffer(node(600 * MIB), NODE.size)
    cuda.must("cuGraphAddMemAllocNode", byref(added), graph, None, 0, alloc)
    make = hook if hook.startswith("cuGraphInstantiate") else "cuGraphInstantiateWithFlags"
    with_log: list[object] = [None, None, 0]
    rest: dict[str, list[object]] = {
        "cuGraphInstantiate": with_log,
        "cuGraphInstantiate_v2": with_log,
        "cuGraphInstantiateWithFlags": [0],
    }
    cuda.must(make, byref(executable), graph, *rest.get(make, [bytes(32)]))
    cuda.must("cuGraphDestroy", graph)
    must_count(cuda, 600 * MIB, step=0)  # the executable graph still holds the memory
    start = hook if hook.startswith(("cuGraphLaunch", "cuGraphUpload")) else "cuGraphLaunch"
    if start == hook:  # memory of this device in a graph of another library is only counted afterwards
        hide_from_the_ledger(cuda, executable, start)
        return
    cuda.must(start, executable, None)
    cuda.must("cuGraphExecDestroy", executable)
    must_count(cuda, 600 * MIB)
    must_be(cuda, LIMIT - 600 * MIB, POOL_STEP)
    cuda.must("cuDeviceGraphMemTrim", c_int(0))
    must_count(cuda, 600 * MIB)  # the memory outlives the graph that allocated it, until it is freed
    cuda.must("cuMemFree_v2", address_of_node(alloc))
    must_count(cuda, 600 * MIB)  # the device keeps the memory for other graphs
    cuda.must("cuDeviceGraphMemTrim", c_int(0))
    must_count(cuda, 0, step=0)
    must_be(cuda, LIMIT)


def hide_from_the_ledger(cuda: Cuda, executable: c_void_p, start: str) -> None:
    second, graph = c_void_p(), c_void_p()
    create, add, instantiate = (
        function_in("libcuda.so", name)
        for name in ("cuGraphCreate", "cuGraphAddMemAllocNode", "cuGraphInstantiateWithFlags")
    )
    assert create(byref(graph), c_uint(0)) == 0
    assert add(byref(c_void_p()), graph, None, c_uint64(0), node(100 * MIB)) == 0
    assert instantiate(byref(second), graph, c_uint64(0)) == 0
    cuda.must("cuGraphLaunch", executable, None)
    cuda.must(start, second, None)
    must_count(cuda, 700 * MIB)


@scenario("cuCtxDestroy_v2", "cuCtxDestroy", "cuCtxDetach")
def contexts(hook: str) -> None:
    cuda = Cuda()
    context = c_void_p()
    block = cuda.allocate(100 * MIB)
    cuda.must("cuCtxCreate_v2", byref(context), 0, c_int(0))
    cuda.allocate(300 * MIB)
    cuda.must("cuCtxSetLimit", c_int(2), 100 * MIB)
    must_be(cuda, LIMIT - 500 * MIB)
    cuda.must(hook, context)
    cuda.must("cuCtxSetCurrent", cuda.context)
    must_be(cuda, LIMIT - 100 * MIB)
    cuda.must("cuMemFree_v2", block)
    must_be(cuda, LIMIT)


@scenario(
    "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"
)  # fmt: skip
def primary_contexts(hook: str) -> None:
    cuda = Cuda()
    cuda.allocate(300 * MIB)
    again = c_void_p()
    if "Release" in hook:
        cuda.must("cuDevicePrimaryCtxRetain", byref(again), c_int(0))
        cuda.must(hook, c_int(0))
        must_be(cuda, LIMIT - 300 * MIB)  # another owner still holds the memory
    cuda.must(hook, c_int(0))
    must_count(cuda, 0, step=0)
    cuda.must("cuDevicePrimaryCtxRetain", byref(again), c_int(0))
    cuda.must("cuCtxSetCurrent", again)
    must_be(cuda, LIMIT)


@scenario("cuDeviceTotalMem_v2", "cuMemGetInfo_v2")
def totals(hook: str) -> None:
    cuda = Cuda()
    total = c_size_t()
    cuda.must("cuDeviceTotalMem_v2", byref(total), c_int(0))
    assert total.value == LIMIT
    assert cuda.info() == (LIMIT, LIMIT)
    cuda.allocate(MIB)
    assert cuda.info() == (LIMIT - MIB, LIMIT)


@scenario("cuDeviceTotalMem", "cuMemGetInfo")
def totals_of_32_bits(hook: str) -> None:
    cuda = Cuda()
    free, total = c_uint(), c_uint()
    cuda.allocate(MIB)
    cuda.must("cuDeviceTotalMem", byref(total), c_int(0))
    assert total.value == LIMIT
    if not IS_DOUBLE:  # a driver refuses this in a context made by a newer function
        assert cuda.call("cuMemGetInfo", byref(free), byref(total)) == INVALID_CONTEXT
        assert free.value <= LIMIT - MIB
        assert total.value <= LIMIT
        return
    cuda.must("cuMemGetInfo", byref(free), byref(total))
    assert (free.value, total.value) == (LIMIT - MIB, LIMIT)


@scenario("cuGetProcAddress", "cuGetProcAddress_v2")
def look_up(hook: str) -> None:
    cuda = Cuda()
    function = c_void_p()
    rest = [None] if hook.endswith("_v2") else []
    cuda.must(hook, b"cuMemAlloc", byref(function), c_int(12090), 0, *rest)
    allocate_ = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t)(function.value or 0)
    assert allocate_(ctypes.addressof(c_uint64()), LIMIT + 1) == OUT_OF_MEMORY
    cuda.must(hook, b"cuGetProcAddress", byref(function), c_int(12000), 0, *rest)
    assert is_ours("cuGetProcAddress_v2", ctypes.cast(function, c_void_p))
    cuda.must(hook, b"cuMemAllocAsync", byref(function), c_int(12090), PER_THREAD, *rest)
    assert is_ours("cuMemAllocAsync_ptsz", ctypes.cast(function, c_void_p))


def is_ours(name: str, function: object) -> bool:
    """Return whether an address is the library's own function with this name."""
    address = ctypes.cast(function, c_void_p).value  # type: ignore[arg-type]
    preloaded = ctypes.CDLL(None)
    ours = ctypes.cast(getattr(preloaded, name), c_void_p).value
    return ours == address != address_in("libcuda.so", name)


def main() -> None:
    """Run the scenarios of the hooks, each in a new process that has not called the driver yet."""
    for hook in sys.argv[1].split(","):
        child = os.fork()
        if not child:
            SCENARIOS[hook]()
            return
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{hook} failed")


if __name__ == "__main__":
    main()
