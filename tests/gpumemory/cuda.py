"""Calls libcuda as a program does, by ctypes: looks up every name by dlsym, or by cuGetProcAddress_v2.

For processes with or without the library; it imports nothing of muster.
"""

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Final

OUT_OF_MEMORY: Final = 2
INVALID_CONTEXT: Final = 201
NOT_SUPPORTED: Final = 801
MIB: Final = 1 << 20
PER_THREAD: Final = 2


class Cuda:
    """A device with a context, and the driver's answers."""

    def __init__(self, device: int = 0) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
        if "CUDA_BY_NAME" in os.environ:  # found as by a program linked to libcuda: without dlsym's hook
            self.driver = ctypes.CDLL(None)
        self.device = device
        self.must("cuInit", 0)
        context = c_void_p()
        self.must("cuDevicePrimaryCtxRetain", byref(context), device)
        self.context = context
        self.must("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> int:
        """Return the result of a function. Integers are passed as 64 bits."""
        wide = [c_uint64(value) if type(value) is int else value for value in arguments]
        return int(getattr(self.driver, name)(*wide))

    def must(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed."""
        answer = self.call(name, *arguments)
        assert answer == 0, f"{name}: {answer}"

    def looked_up(self, request: str, version: int, flags: int = 0) -> int:
        """Return the address from cuGetProcAddress_v2."""
        function, status = c_void_p(), c_int()
        self.must("cuGetProcAddress_v2", request.encode(), byref(function), version, flags, byref(status))
        return function.value or 0

    def allocate(self, bytes_: int, name: str = "cuMemAlloc_v2") -> int:
        """Allocate this many bytes, and return the address."""
        pointer = c_uint64()
        self.must(name, byref(pointer), bytes_)
        return pointer.value

    def allocate_in_stream(self, bytes_: int) -> int:
        """Allocate this many bytes from the default stream's pool, and return the address."""
        pointer = c_uint64()
        self.must("cuMemAllocAsync", byref(pointer), bytes_, None)
        return pointer.value

    def answer_to(self, bytes_: int) -> int:
        """Return the answer of cuMemAlloc to this many bytes, and free them."""
        pointer = c_uint64()
        answer = self.call("cuMemAlloc_v2", byref(pointer), bytes_)
        if answer == 0:
            self.must("cuMemFree_v2", pointer)
        return answer

    def free_bytes(self) -> int:
        """Return the driver's free bytes."""
        return self.info()[0]

    def info(self) -> tuple[int, int]:
        """Return the free and the total bytes."""
        free, total = c_size_t(), c_size_t()
        self.must("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value
