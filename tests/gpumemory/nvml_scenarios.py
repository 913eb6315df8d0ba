"""Tests of each hook of NVML: `python -m tests.gpumemory.nvml_scenarios HOOK`, on the lab's double of NVML.

The container has half of a device of 32,510 MiB, and this process uses 1,000 MiB of it. The double reports a neighbour,
process 4242, with 10,240 MiB.
"""

import ctypes
import os
import struct
import sys
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from typing import Any, Final

from tests.gpumemory.cuda import MIB, Cuda

TOTAL: Final = 16255 * MIB
USED: Final = 1000 * MIB
INSUFFICIENT_SIZE: Final = 7


class Management:
    """NVML, and the first device."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = c_void_p()
        assert self.library.nvmlInit_v2() == 0
        assert self.library.nvmlDeviceGetHandleByIndex_v2(0, byref(self.device)) == 0

    def call(self, hook: str, *arguments: Any) -> int:
        """Return the result of a function on the device."""
        return int(getattr(self.library, hook)(self.device, *arguments))

    def processes(self, hook: str, form: str) -> list[tuple[Any, ...]]:
        """Return the entries in a list of processes."""
        count = c_uint(0)
        answer = self.call(hook, byref(count), None)
        assert answer == (INSUFFICIENT_SIZE if count.value else 0)
        count = c_uint(8)
        buffer = ctypes.create_string_buffer(8 * struct.calcsize(form))
        assert self.call(hook, byref(count), buffer) == 0
        return list(struct.iter_unpack(form, buffer.raw[: count.value * struct.calcsize(form)]))


def check(hook: str) -> None:
    """Fail unless the hook reports the container's fraction and its own processes."""
    Cuda().allocate(USED)
    nvml = Management()
    if hook == "nvmlDeviceGetMemoryInfo":
        memory = (c_ulonglong * 3)()
        assert nvml.call(hook, memory) == 0
        assert list(memory) == [TOTAL, TOTAL - USED, USED]
    elif hook == "nvmlDeviceGetMemoryInfo_v2":
        memory = (c_ulonglong * 5)(40 | 2 << 24)
        assert nvml.call(hook, memory) == 0
        assert list(memory)[1:] == [TOTAL, 0, TOTAL - USED, USED]
    elif hook == "nvmlDeviceGetBAR1MemoryInfo":
        memory = (c_ulonglong * 3)()
        assert nvml.call(hook, memory) == 0
        assert list(memory) == [TOTAL, TOTAL, 0]
    elif hook == "nvmlDeviceGetComputeRunningProcesses":
        assert nvml.processes(hook, "I4xQ") == [(os.getpid(), USED)]
    elif hook.startswith("nvmlDeviceGetComputeRunningProcesses"):
        assert nvml.processes(hook, "I4xQII") == [(os.getpid(), USED, 0xFFFFFFFF, 0xFFFFFFFF)]
    elif hook.startswith(("nvmlDeviceGetGraphics", "nvmlDeviceGetMPSCompute")):
        assert nvml.processes(hook, "I4xQII") == []
        assert address_of(hook) == ctypes.cast(getattr(nvml.library, hook), c_void_p).value
    elif hook == "nvmlDeviceGetRunningProcessDetailList":
        buffer = ctypes.create_string_buffer(8 * 32)
        details = struct.pack("IIIxxxxQ", 24 | 1 << 24, 0, 8, ctypes.addressof(buffer))
        assert nvml.call(hook, details) == 0
        assert struct.unpack_from("I4xQIIQ", buffer.raw) == (os.getpid(), USED, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    elif hook == "nvmlDeviceGetProcessUtilization":
        buffer, count = ctypes.create_string_buffer(8 * 32), c_uint(8)
        nvml.call(hook, buffer, byref(count), c_ulonglong(0))
        assert count.value == 0  # the neighbour's process must not be visible
    else:  # the double does not answer this function: the hook exists, and is the library's own
        assert nvml.call(hook, struct.pack("IIQQ", 24 | 1 << 24, 0, 0, 0)) != 0
        assert address_of(hook) == ctypes.cast(getattr(nvml.library, hook), c_void_p).value


def address_of(hook: str) -> int | None:
    """Return the address of a hook in this process's own library; None without one."""
    return ctypes.cast(getattr(ctypes.CDLL(os.environ["LD_PRELOAD"]), hook), c_void_p).value


if __name__ == "__main__":
    check(sys.argv[1])
