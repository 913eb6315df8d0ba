"""Joins the data about the node's GPUs once a second: from NVML, the cgroups of processes, and the kubelet.

The collector runs in a thread of its own, because NVML can block if a GPU has a fault. Most calls are cheap. The
processes on a GPU are read every 5 seconds, and values with rare changes every 10 seconds, one GPU after the other.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from orchestrator.agent.cgroups import owner_of
from orchestrator.agent.errors import NvmlUnavailable
from orchestrator.agent.failures import GpuHealth
from orchestrator.agent.model import Gpu, GpuReading, Holder, NodeReading, Owner, Process, Sample, Upkeep
from orchestrator.agent.nvml import GpuProblem
from orchestrator.agent.pod_resources import HeldDevice

logger = logging.getLogger(__name__)

PROCESSES_TICKS: Final = 5
UPKEEP_TICKS: Final = 10
REOPEN_TICKS: Final = 30
MEAN_SAMPLES: Final = 30
IDLE_SECONDS: Final = 60
"""Time after which a held GPU with a utilization of 0 counts as idle."""
DRA_DRIVER: Final = "gpu.nvidia.com"
_MAX_OWNERS: Final = 4096


class Driver(Protocol):
    """The calls of NVML; see `nvml.Nvml`."""

    gpus: tuple[Gpu, ...]
    driver_version: str

    def open(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def reprobe(self) -> None: ...  # noqa: D102
    def sample(self, gpu: Gpu, /) -> Sample: ...  # noqa: D102
    def upkeep(self, gpu: Gpu, /) -> Upkeep: ...  # noqa: D102
    def processes(self, gpu: Gpu, /) -> tuple[Process, ...]: ...  # noqa: D102
    def xids(self) -> Iterable[tuple[int | None, int]]: ...  # noqa: D102


class _Watched:
    """The state of one GPU that is kept from reading to reading."""

    def __init__(self, xid_failure: str = "") -> None:
        self.health = GpuHealth(xid_failure)
        self.utilization: deque[int] = deque(maxlen=MEAN_SAMPLES)
        self.processes: tuple[Process, ...] = ()
        self.upkeep = Upkeep()
        self.still_since: float | None = None

    @property
    def mean_percent(self) -> int | None:
        """The mean utilization of the GPU in the last samples.

        In percent, rounded up, so that any use gives at least 1.
        """
        if not self.utilization:
            return None
        return -(-sum(self.utilization) // len(self.utilization))

    def idle_since(self, sample: Sample | None, *, is_held: bool, now: float) -> int | None:
        """Return the start of the idle time of a held GPU; None if it is not idle, or for less than IDLE_SECONDS."""
        if not is_held or sample is None or sample.utilization_percent is None or sample.utilization_percent:
            self.still_since = None
            return None
        if self.still_since is None:
            self.still_since = now
        return int(self.still_since) if now - self.still_since >= IDLE_SECONDS else None


class Collector:
    """Reads the GPUs. `clock` is monotonic and `wall_clock` since the epoch, in seconds.

    `known` are the GPUs in the report of the previous agent process, by index, with their lasting failures.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        find_owner: Callable[[int], Owner] = owner_of,
        known: Mapping[int, tuple[Gpu, str]] | None = None,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._wall_clock = wall_clock
        self._find_owner = find_owner
        self._known = dict(known or {})
        self._watched: dict[int, _Watched] = {}
        self._owners: dict[int, Owner] = {}
        self._problem = "it was not opened yet"
        self._is_open = False
        self._ticks = 0

    def read(self, held: Sequence[HeldDevice]) -> NodeReading:
        """Return the present state; `held` is the last report of the kubelet."""
        tick, self._ticks = self._ticks, self._ticks + 1
        try:
            self._open(tick)
            if not self._is_open:
                return NodeReading(nvml_problem=self._problem)
            if tick % UPKEEP_TICKS == 0:
                self._driver.reprobe()
            self._take_xids()
            gpus = self._driver.gpus
            by_device = _by_device(gpus)
            holders: dict[int, set[Holder]] = {}
            for device in held:
                index = by_device.get((device.driver, device.device.partition("::")[0]))
                if index is not None:
                    holders.setdefault(index, set()).add(device.holder)
            readings = tuple(self._read(gpu, tick, tuple(sorted(holders.get(gpu.index, ())))) for gpu in gpus)
        except NvmlUnavailable as error:
            self._close(str(error))
            return NodeReading(nvml_problem=self._problem)
        self._forget_processes(readings)
        return NodeReading(readings, driver_version=self._driver.driver_version)

    def _open(self, tick: int) -> None:
        if self._is_open or tick % REOPEN_TICKS:
            return
        self._driver.open()
        self._is_open = True
        logger.info("NVML: driver %s, %d GPUs", self._driver.driver_version, len(self._driver.gpus))

    def _close(self, why: str) -> None:
        if self._is_open or why != self._problem:
            logger.warning("%s; it is tried again every %d s", why, REOPEN_TICKS)
        if self._is_open:
            self._driver.close()
        self._is_open = False
        self._problem = why

    def _take_xids(self) -> None:
        for index, xid in self._driver.xids():
            where = "a GPU that does not say which" if index is None else f"GPU {index}"
            logger.warning("Xid %d on %s", xid, where)
            if index is not None:
                self._of(index).health.has_xid(xid, self._wall_clock())

    def _of(self, index: int) -> _Watched:
        watched = self._watched.get(index)
        if watched is None:
            failure = self._known[index][1] if index in self._known else ""
            watched = self._watched[index] = _Watched(failure)
        return watched

    def _read(self, gpu: Gpu, tick: int, holders: tuple[Holder, ...]) -> GpuReading:
        watched = self._of(gpu.index)
        before = watched.health.failure
        sample: Sample | None = None
        try:
            sample = self._driver.sample(gpu)
            watched.health.has_answered(self._clock())
            if (tick + gpu.index) % PROCESSES_TICKS == 0 or tick == 0:
                watched.processes = tuple(
                    replace(process, owner=self._owner(process.pid))
                    for process in self._driver.processes(gpu)
                )
            if (tick + gpu.index) % UPKEEP_TICKS == 0 or tick == 0:
                watched.upkeep = self._driver.upkeep(gpu)
                watched.health.has_rows(failed=watched.upkeep.row_remap_failed)
        except GpuProblem as error:
            watched.health.has_failed(error.kind)
            watched.processes = ()
            logger.debug("GPU %d: %s", gpu.index, error)
        failure = watched.health.failure
        if failure != before:
            logger.warning("GPU %d: %s", gpu.index, failure or "it is well again")
        if sample is not None and sample.utilization_percent is not None:
            watched.utilization.append(sample.utilization_percent)
        return GpuReading(
            gpu if gpu.uuid else self._known.get(gpu.index, (gpu, ""))[0],
            sample=sample,
            upkeep=watched.upkeep,
            processes=watched.processes,
            holders=holders,
            failure=failure,
            is_lost=watched.health.is_lost,
            xids=watched.health.xids,
            mean_utilization_percent=None if sample is None else watched.mean_percent,
            idle_since=watched.idle_since(sample, is_held=bool(holders), now=self._wall_clock()),
        )

    def _owner(self, pid: int) -> Owner:
        owner = self._owners.get(pid)
        if owner is None:
            if len(self._owners) >= _MAX_OWNERS:
                self._owners.clear()
            owner = self._owners[pid] = self._find_owner(pid)
        return owner

    def _forget_processes(self, readings: Iterable[GpuReading]) -> None:
        """Forget the owners of ended processes: another process can have the same pid at the next reading."""
        present = {process.pid for reading in readings for process in reading.processes}
        for pid in self._owners.keys() - present:
            del self._owners[pid]


def _by_device(gpus: Iterable[Gpu]) -> dict[tuple[str, str], int]:
    """Return the index of each GPU by driver and device name: "" and the UUID for device plugins, `gpu-` and the minor
    for NVIDIA's DRA driver.
    """
    names: dict[tuple[str, str], int] = {}
    for gpu in gpus:
        if gpu.uuid:
            names["", gpu.uuid] = gpu.index
        if gpu.minor is not None:
            names[DRA_DRIVER, f"gpu-{gpu.minor}"] = gpu.index
    return names
