"""Reads GPUs from NVML, the driver's library, through NVIDIA's Python binding, and classifies its errors.

Every call can fail. An unsupported value is None, and is not read again. A lost GPU raises `GpuProblem`; without a
driver, `NvmlUnavailable` is raised, and `open` is tried again.
"""

import ctypes
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pynvml

from orchestrator.agent.errors import NvmlUnavailable
from orchestrator.agent.model import Gpu, Process, Sample, Upkeep
from orchestrator.errors import MusterError

logger = logging.getLogger(__name__)

_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
_DRIVER_LOST: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
LOST: Final = "lost"
RESET_REQUIRED: Final = "reset-required"
NO_ANSWER: Final = "no-answer"
_PROBLEMS: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST: LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: RESET_REQUIRED,
}
THROTTLE_REASONS: Final = {
    "gpu_idle": pynvml.nvmlClocksEventReasonGpuIdle,
    "applications_clocks_setting": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
    "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
    "sw_thermal_slowdown": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hw_thermal_slowdown": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hw_power_brake_slowdown": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    "display_clock_setting": pynvml.nvmlClocksEventReasonDisplayClockSetting,
}
_MAX_EVENTS: Final = 64


class GpuProblem(MusterError):
    """A GPU failed to answer. `kind` is one of a few words, for the labels of metrics."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


_LIBRARY: Final = "libnvidia-ml.so.1"
_DIRECTORIES: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)


class Nvml:
    """An opened NVML. The library is below `driver_root`, or the one that the linker finds.

    Use it from one thread at a time. Calls may block if a GPU has a fault.
    """

    def __init__(self, driver_root: Path | None = None) -> None:
        self._driver_root = driver_root
        self._handles: dict[int, Any] = {}
        self._events: Any = None
        self._index_of_bus: dict[str, int] = {}
        self._unsupported: set[tuple[int, Callable[..., Any], tuple[int, ...]]] = set()
        self.gpus: tuple[Gpu, ...] = ()
        self.driver_version = ""

    def open(self) -> None:
        """Load the library and find the GPUs. Raises NvmlUnavailable."""
        self._load_library()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlUnavailable(f"NVML: {error}") from error
        try:
            self.driver_version = pynvml.nvmlSystemGetDriverVersion()
            self._events = pynvml.nvmlEventSetCreate()
            self.gpus = tuple(self._gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError as error:
            self.close()
            raise NvmlUnavailable(f"NVML: {error}") from error

    def close(self) -> None:
        """Shut NVML down, and forget the GPUs."""
        try:
            if self._events is not None:
                pynvml.nvmlEventSetFree(self._events)
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            logger.debug("NVML did not close: %s", error)
        self._events = None
        self._handles.clear()
        self._index_of_bus.clear()
        self._unsupported.clear()
        self.gpus = ()

    def reprobe(self) -> None:
        """Query again each GPU that did not answer in `open`."""
        if any(not gpu.uuid for gpu in self.gpus):
            self.gpus = tuple(gpu if gpu.uuid else self._gpu(gpu.index) for gpu in self.gpus)

    def sample(self, gpu: Gpu) -> Sample:
        """Return the values with frequent changes. Raises GpuProblem and NvmlUnavailable."""
        handle = self._handle(gpu)
        used = self._memory_used(gpu, handle)
        rates = self._query(gpu, pynvml.nvmlDeviceGetUtilizationRates, handle)
        clock = pynvml.nvmlDeviceGetClockInfo
        return Sample(
            memory_used_bytes=used,
            utilization_percent=None if rates is None else int(rates.gpu),
            memory_utilization_percent=None if rates is None else int(rates.memory),
            temperature_celsius=self._query(
                gpu, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            power_milliwatts=self._query(gpu, pynvml.nvmlDeviceGetPowerUsage, handle),
            sm_clock_mhz=self._query(gpu, clock, handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._query(gpu, clock, handle, pynvml.NVML_CLOCK_MEM),
            throttle_bits=self._throttle_bits(gpu, handle),
        )

    def upkeep(self, gpu: Gpu) -> Upkeep:
        """Return the values with rare changes. Raises GpuProblem and NvmlUnavailable."""
        handle = self._handle(gpu)
        corrected, uncorrected = (
            self._query(gpu, pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC)
            for kind in (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        )
        rows = self._query(gpu, pynvml.nvmlDeviceGetRemappedRows, handle)
        pending = self._query(gpu, pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        links = [
            self._query(gpu, pynvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(gpu.nvlinks)
        ]
        return Upkeep(
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
            rows_remapped_corrected=rows[0] if rows else None,
            rows_remapped_uncorrected=rows[1] if rows else None,
            row_remap_pending=bool(rows[2]) if rows else None,
            row_remap_failed=bool(rows[3]) if rows else None,
            retired_pages_pending=None if pending is None else bool(pending),
            nvlinks_up=sum(link == pynvml.NVML_FEATURE_ENABLED for link in links) if links else None,
            nvlink_replay_errors=self._link_errors(gpu, handle, pynvml.NVML_NVLINK_ERROR_DL_REPLAY),
            nvlink_recovery_errors=self._link_errors(gpu, handle, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY),
            nvlink_crc_errors=self._link_errors(gpu, handle, pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT),
        )

    def processes(self, gpu: Gpu) -> tuple[Process, ...]:
        """Return the compute and graphics processes of the GPU, sorted by PID.

        Raises GpuProblem and NvmlUnavailable.
        """
        handle = self._handle(gpu)
        by_pid: dict[int, int | None] = {}
        for call in (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for process in self._query(gpu, call, handle) or ():
                used = process.usedGpuMemory
                by_pid[int(process.pid)] = None if used is None else int(used)
        return tuple(Process(pid, used) for pid, used in sorted(by_pid.items()))

    def xids(self) -> Iterator[tuple[int | None, int]]:
        """Yield the errors since the last call: the index of the GPU (None if it is unknown) and the Xid."""
        for _ in range(_MAX_EVENTS):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError as error:
                if error.value in _DRIVER_LOST:
                    raise NvmlUnavailable(f"NVML: {error}") from error
                if error.value not in {pynvml.NVML_ERROR_TIMEOUT, *_UNSUPPORTED}:
                    logger.debug("waiting for events: %s", error)
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                yield self._index_of(event.device), int(event.eventData)

    def _load_library(self) -> None:
        """Load the library below the driver's root.

        Later loads of the same name then get this library, not the linker's.
        """
        if self._driver_root is None:
            return
        path = next(
            (path for name in _DIRECTORIES if (path := self._driver_root / name / _LIBRARY).exists()), None
        )
        if path is None:
            raise NvmlUnavailable(f"NVML: {_LIBRARY} is not in {self._driver_root}")
        try:
            ctypes.CDLL(str(path))
        except OSError as error:
            raise NvmlUnavailable(f"NVML: {path}: {error}") from error

    def _gpu(self, index: int) -> Gpu:
        """Return the properties of a GPU. A GPU that does not answer has only an index."""
        try:
            handle = self._handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            logger.debug("GPU %d does not answer: %s", index, error)
            return Gpu(index)
        gpu = Gpu(index)
        try:
            pci = self._query(gpu, pynvml.nvmlDeviceGetPciInfo, handle)
            memory = self._query(gpu, pynvml.nvmlDeviceGetMemoryInfo, handle)
            gpu = Gpu(
                index,
                uuid=self._query(gpu, pynvml.nvmlDeviceGetUUID, handle) or "",
                model=self._query(gpu, pynvml.nvmlDeviceGetName, handle) or "",
                bus_id=str(pci.busId) if pci else "",
                minor=self._query(gpu, pynvml.nvmlDeviceGetMinorNumber, handle),
                memory_bytes=int(memory.total) if memory else 0,
                nvlinks=self._count_links(gpu, handle),
            )
            self._index_of_bus[gpu.bus_id] = index
            self._register(gpu, handle)
        except GpuProblem as error:
            logger.debug("GPU %d: %s", index, error)
        return gpu

    def _register(self, gpu: Gpu, handle: Any) -> None:
        known = self._query(gpu, pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        if known & pynvml.nvmlEventTypeXidCriticalError:
            kind = pynvml.nvmlEventTypeXidCriticalError
            self._query(gpu, pynvml.nvmlDeviceRegisterEvents, handle, kind, self._events)

    def _count_links(self, gpu: Gpu, handle: Any) -> int:
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if self._query(gpu, pynvml.nvmlDeviceGetNvLinkState, handle, link) is None:
                return link
        return int(pynvml.NVML_NVLINK_MAX_LINKS)

    def _link_errors(self, gpu: Gpu, handle: Any, counter: int) -> int | None:
        call = pynvml.nvmlDeviceGetNvLinkErrorCounter
        counts = [self._query(gpu, call, handle, link, counter) for link in range(gpu.nvlinks)]
        known = [int(count) for count in counts if count is not None]
        return sum(known) if known else None

    def _memory_used(self, gpu: Gpu, handle: Any) -> int | None:
        call = pynvml.nvmlDeviceGetMemoryInfo
        memory = self._query(gpu, call, handle, pynvml.nvmlMemory_v2)
        if memory is None:  # drivers before 510: `used` includes the memory that the driver reserves
            memory = self._query(gpu, call, handle)
        return None if memory is None else int(memory.used)

    def _throttle_bits(self, gpu: Gpu, handle: Any) -> int | None:
        bits = self._query(gpu, pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if bits is None:  # drivers before 535
            bits = self._query(gpu, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return None if bits is None else int(bits)

    def _index_of(self, handle: Any) -> int | None:
        """Return the index of the GPU of an event, by its bus ID.

        A GPU that fell off the bus may not give its bus ID. Then its handle is compared.
        """
        try:
            return self._index_of_bus[str(pynvml.nvmlDeviceGetPciInfo(handle).busId)]
        except (KeyError, pynvml.NVMLError):
            address = _address(handle)
            return next((index for index, known in self._handles.items() if _address(known) == address), None)

    def _handle(self, gpu: Gpu) -> Any:
        handle = self._handles.get(gpu.index)
        if handle is None:
            raise GpuProblem(LOST, "it did not answer when the driver was opened")
        return handle

    def _query(self, gpu: Gpu, call: Callable[..., Any], handle: Any, *arguments: Any) -> Any:
        """Return the answer to one call, None if the GPU or the driver does not support it."""
        key = (gpu.index, call, tuple(number for number in arguments if isinstance(number, int)))
        if key in self._unsupported:
            return None
        try:
            return call(handle, *arguments)
        except pynvml.NVMLError as error:
            if error.value in _UNSUPPORTED:
                self._unsupported.add(key)
                return None
            if error.value in _DRIVER_LOST:
                raise NvmlUnavailable(f"NVML: {error}") from error
            kind = _PROBLEMS.get(error.value, NO_ANSWER)
            raise GpuProblem(kind, f"{call.__name__}: {error}") from error


def _address(handle: Any) -> int:
    """Return the address in a handle, because two handles of one GPU are equal only by address."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
