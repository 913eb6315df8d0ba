"""A double of the driver, with values set by a test."""

from collections.abc import Iterator

from orchestrator.agent.errors import NvmlUnavailable
from orchestrator.agent.model import Gpu, Process, Sample, Upkeep
from orchestrator.agent.nvml import GpuProblem

MIB = 1 << 20


def uuid(index: int) -> str:
    return f"GPU-{index:08d}-0000-0000-0000-000000000000"


class FakeDriver:
    """A driver with idle GPUs of 32 GiB each, until a test changes them."""

    def __init__(self, count: int = 2) -> None:
        self.gpus: tuple[Gpu, ...] = ()
        self.driver_version = "550.1"
        self.count = count
        self.utilization = [0] * count
        self.memory = [0] * count
        self.temperatures: dict[int, int] = {}
        self.throttle_bits: dict[int, int] = {}
        self.problems: dict[int, str] = {}
        self.running: dict[int, tuple[Process, ...]] = {}
        self.upkeeps: dict[int, Upkeep] = {}
        self.events: list[tuple[int | None, int]] = []
        self.is_missing = False
        self.opened = 0
        self.samples = 0

    def open(self) -> None:
        if self.is_missing:
            raise NvmlUnavailable("NVML: NVML Shared Library Not Found")
        self.opened += 1
        self.gpus = tuple(
            Gpu(index) if self.problems.get(index) == "lost" else self._gpu(index)
            for index in range(self.count)
        )

    def close(self) -> None:
        self.gpus = ()

    def reprobe(self) -> None:
        self.gpus = tuple(
            gpu if gpu.uuid or gpu.index in self.problems else self._gpu(gpu.index) for gpu in self.gpus
        )

    def sample(self, gpu: Gpu) -> Sample:
        self.samples += 1
        if self.is_missing:
            raise NvmlUnavailable("NVML: Driver Not Loaded")
        if gpu.index in self.problems:
            raise GpuProblem(self.problems[gpu.index], "it was told to")
        return Sample(
            memory_used_bytes=self.memory[gpu.index],
            utilization_percent=self.utilization[gpu.index],
            power_milliwatts=43_500,
            temperature_celsius=self.temperatures.get(gpu.index),
            throttle_bits=self.throttle_bits.get(gpu.index),
        )

    def upkeep(self, gpu: Gpu) -> Upkeep:
        return self.upkeeps.get(gpu.index, Upkeep())

    def processes(self, gpu: Gpu) -> tuple[Process, ...]:
        return self.running.get(gpu.index, ())

    def xids(self) -> Iterator[tuple[int | None, int]]:
        while self.events:
            yield self.events.pop(0)

    @staticmethod
    def _gpu(index: int) -> Gpu:
        return Gpu(
            index, uuid(index), "Tesla V100", f"00000000:0{index}:00.0", 7 - index, 32768 * MIB, nvlinks=6
        )
