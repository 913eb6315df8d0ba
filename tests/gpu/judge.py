"""The real GPU memory of processes, from NVML in a process without the library."""

from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True)
class Judge:
    """The first GPU of this machine, read by NVML."""

    handle: Any
    name: str
    uuid: str
    total_bytes: int
    driver_version: str

    @classmethod
    def open(cls) -> "Judge":
        """Open NVML and keep it open, so that the driver stays loaded between two programs. Raises NVMLError."""
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return cls(
            handle,
            pynvml.nvmlDeviceGetName(handle),
            pynvml.nvmlDeviceGetUUID(handle),
            int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            pynvml.nvmlSystemGetDriverVersion(),
        )

    def processes(self) -> dict[int, int | None]:
        """Return the bytes of each computing process by pid; None if the driver does not report them."""
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return {
            int(process.pid): None if process.usedGpuMemory is None else int(process.usedGpuMemory)
            for process in running
        }

    def device_bytes(self) -> int:
        """Return the memory used by all processes and the driver."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle).used)

    def facts(self) -> dict[str, Any]:
        """Return facts about the GPU without changing it."""
        first = pynvml.nvmlDeviceGetMemoryInfo(self.handle)
        second = pynvml.nvmlDeviceGetMemoryInfo(self.handle, version=pynvml.nvmlMemory_v2)
        try:
            mig: Any = pynvml.nvmlDeviceGetMigMode(self.handle)
        except pynvml.NVMLError as error:
            mig = str(error)
        return {
            "name": self.name,
            "driver": self.driver_version,
            "cuda_of_the_driver": pynvml.nvmlSystemGetCudaDriverVersion(),
            "memory": {"total": int(first.total), "free": int(first.free), "used": int(first.used)},
            "memory_v2": {
                "total": int(second.total), "reserved": int(second.reserved), "free": int(second.free),
                "used": int(second.used),
            },
            "mig_current_and_pending": mig,
            "processes": {str(pid): bytes_ for pid, bytes_ in self.processes().items()},
        }  # fmt: skip
