"""The agent's figures in the text format of Prometheus (version 0.0.4). Pure.

Names begin with `muster_gpu_`; units are base units; the labels of a GPU are `gpu` (its index) and `uuid`. The number
of series is bounded by the GPUs, the containers that hold them and those that compute on them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.agent.model import GpuReading, NodeReading, Owner, Process
from orchestrator.agent.nvml import THROTTLE_REASONS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_OWNERS: Final = 64
"""So many containers are named for each GPU; the others count together as `other`."""
_OTHERS: Final = Owner("other", "other")

Labels = Mapping[str, str]
Number = int | float | None


@dataclass(slots=True)
class AgentFigures:
    """What the agent says of itself."""

    samples: int = 0
    writes: dict[tuple[str, str], int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    resident_bytes: int = 0


class _Text:
    """Lines of metrics; each is described once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, values: Iterable[tuple[Labels, Number]]) -> None:
        """Add a metric with its values; nothing if there are none."""
        lines = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in values if value is not None]
        if lines:
            self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines]

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"


def render(reading: NodeReading, agent: AgentFigures) -> str:
    """Return the page."""
    text = _Text()
    problems = (("nvml", reading.nvml_problem), ("kubelet", reading.kubelet_problem))
    text.add(
        "muster_agent_source_up",
        "gauge",
        "Whether the agent is answered: by the driver (nvml), by the pod-resources socket (kubelet).",
        [({"source": source}, int(not problem)) for source, problem in problems],
    )
    _of_gpus(text, reading.gpus)
    _of_memory_errors(text, reading.gpus)
    _of_pods(text, reading.gpus)
    text.add("muster_agent_samples_total", "counter", "Rounds over all GPUs.", [({}, agent.samples)])
    text.add(
        "muster_agent_writes_total",
        "counter",
        "Writes to the API server, by what was written and how that ended.",
        [({"object": about, "result": how}, count) for (about, how), count in sorted(agent.writes.items())],
    )
    text.add("process_cpu_seconds_total", "counter", "Processor time used.", [({}, agent.cpu_seconds)])
    text.add(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory size in bytes.",
        [({}, agent.resident_bytes)],
    )
    return text.text()


def memory_by_owner(processes: Iterable[Process]) -> dict[Owner, int]:
    """Return how many bytes of a GPU the processes of each container have; the least are `other` beyond the bound."""
    used: dict[Owner, int] = {}
    for process in processes:
        used[process.owner] = used.get(process.owner, 0) + (process.memory_bytes or 0)
    if len(used) <= MAX_OWNERS:
        return used
    most = sorted(used, key=lambda owner: (-used[owner], owner))
    bounded = {owner: used[owner] for owner in most[:MAX_OWNERS]}
    bounded[_OTHERS] = sum(used[owner] for owner in most[MAX_OWNERS:])
    return bounded


def _of_gpus(text: _Text, gpus: Iterable[GpuReading]) -> None:
    def gauge(name: str, about: str, values: Iterable[tuple[Labels, Number]]) -> None:
        text.add(f"muster_gpu_{name}", "gauge", about, values)

    samples = [(_of(reading), reading.sample) for reading in gpus if reading.sample is not None]
    gauge(
        "info",
        "Always 1; says what the GPU is.",
        [(_of(reading) | {"model": reading.gpu.model, "bus_id": reading.gpu.bus_id}, 1) for reading in gpus],
    )
    gauge(
        "healthy",
        "1 if the GPU may be used, 0 if not.",
        [(_of(reading), int(not reading.failure)) for reading in gpus],
    )
    gauge(
        "memory_total_bytes",
        "Memory that the GPU has.",
        [(_of(reading), reading.gpu.memory_bytes or None) for reading in gpus],
    )
    gauge("memory_used_bytes", "Memory in use.", [(gpu, sample.memory_used_bytes) for gpu, sample in samples])
    gauge(
        "utilization_ratio",
        "Part of the last sample period in which a kernel ran.",
        [(gpu, _ratio(sample.utilization_percent)) for gpu, sample in samples],
    )
    gauge(
        "memory_utilization_ratio",
        "Part of the last sample period in which memory was read or written.",
        [(gpu, _ratio(sample.memory_utilization_percent)) for gpu, sample in samples],
    )
    gauge(
        "temperature_celsius",
        "Temperature of the chip.",
        [(gpu, sample.temperature_celsius) for gpu, sample in samples],
    )
    gauge(
        "power_watts",
        "Power drawn by the board.",
        [(gpu, _scaled(sample.power_milliwatts, 1000)) for gpu, sample in samples],
    )
    gauge(
        "clock_hertz",
        "Clock of the multiprocessors (sm) and of the memory.",
        [
            (gpu | {"clock": clock}, None if mhz is None else mhz * 1_000_000)
            for gpu, sample in samples
            for clock, mhz in (("sm", sample.sm_clock_mhz), ("memory", sample.memory_clock_mhz))
        ],
    )
    gauge(
        "throttled",
        "1 if the clocks are held down for this reason.",
        [
            (gpu | {"reason": reason}, int(bool(sample.throttle_bits & bit)))
            for gpu, sample in samples
            if sample.throttle_bits is not None
            for reason, bit in THROTTLE_REASONS.items()
        ],
    )


def _of_memory_errors(text: _Text, gpus: Iterable[GpuReading]) -> None:
    upkeep = [(_of(reading), reading.upkeep) for reading in gpus]
    text.add(
        "muster_gpu_ecc_errors_total",
        "counter",
        "Errors of memory since the driver was loaded.",
        [
            (gpu | {"kind": kind}, count)
            for gpu, figures in upkeep
            for kind, count in (
                ("corrected", figures.ecc_corrected),
                ("uncorrected", figures.ecc_uncorrected),
            )
        ],
    )
    text.add(
        "muster_gpu_remapped_rows",
        "gauge",
        "Rows of memory that were replaced by spare ones.",
        [
            (gpu | {"kind": kind}, count)
            for gpu, figures in upkeep
            for kind, count in (
                ("corrected", figures.rows_remapped_corrected),
                ("uncorrected", figures.rows_remapped_uncorrected),
            )
        ],
    )
    for name, about, values in (
        ("row_remap_pending", "1 if a row waits for a reset to be replaced.", "row_remap_pending"),
        ("row_remap_failed", "1 if a row could not be replaced.", "row_remap_failed"),
        ("retired_pages_pending", "1 if pages wait for a reset to be retired.", "retired_pages_pending"),
        ("nvlinks_up", "Links to other GPUs and switches that work.", "nvlinks_up"),
    ):
        flags = [(gpu, getattr(figures, values)) for gpu, figures in upkeep]
        text.add(
            f"muster_gpu_{name}",
            "gauge",
            about,
            [(gpu, None if flag is None else int(flag)) for gpu, flag in flags],
        )
    text.add(
        "muster_gpu_nvlink_errors_total",
        "counter",
        "Errors of all links of the GPU together.",
        [
            (gpu | {"kind": kind}, count)
            for gpu, figures in upkeep
            for kind, count in (
                ("replay", figures.nvlink_replay_errors),
                ("recovery", figures.nvlink_recovery_errors),
                ("crc", figures.nvlink_crc_errors),
            )
        ],
    )
    text.add(
        "muster_gpu_xid_errors_total",
        "counter",
        "Errors that the driver told of since the agent started, by their number.",
        [(_of(reading) | {"xid": str(xid)}, count) for reading in gpus for xid, count in reading.xids],
    )


def _of_pods(text: _Text, gpus: Iterable[GpuReading]) -> None:
    text.add(
        "muster_gpu_allocated",
        "gauge",
        "Always 1; says to which container the kubelet gave the GPU.",
        [
            (
                _of(reading)
                | {"namespace": holder.namespace, "pod": holder.pod, "container": holder.container},
                1,
            )
            for reading in gpus
            for holder in reading.holders
        ],
    )
    text.add(
        "muster_gpu_idle_since_timestamp_seconds",
        "gauge",
        "Since when nothing has run on a GPU that a container holds.",
        [(_of(reading), reading.idle_since) for reading in gpus],
    )
    text.add(
        "muster_gpu_process_memory_bytes",
        "gauge",
        "Memory of a GPU in use by the processes of a container; without a pod, by the node's own.",
        [
            (_of(reading) | {"pod_uid": owner.pod_uid, "container_id": owner.container_id}, used)
            for reading in gpus
            for owner, used in sorted(memory_by_owner(reading.processes).items())
        ],
    )


def _of(reading: GpuReading) -> dict[str, str]:
    return {"gpu": str(reading.gpu.index), "uuid": reading.gpu.uuid}


def _ratio(percent: int | None) -> float | None:
    return _scaled(percent, 100)


def _scaled(value: int | None, divisor: int) -> float | None:
    return None if value is None else value / divisor


def _labels(labels: Labels) -> str:
    return "{" + ",".join(_pairs(labels)) + "}" if labels else ""


def _pairs(labels: Labels) -> Iterator[str]:
    for name, value in labels.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        yield f'{name}="{escaped}"'


def _number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
