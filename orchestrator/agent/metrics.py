"""The agent's metrics: one page for Prometheus. Pure.

Names begin with `muster_gpu_`; units are base units; the labels of a GPU are `gpu` (its index) and `uuid`. The number
of series is bounded by the number of GPUs, of containers that hold GPUs, and of containers that compute on them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.agent.host_health import FACTS, HostReading
from orchestrator.agent.model import GpuReading, NodeReading, Owner, Process, Sample, Upkeep
from orchestrator.agent.nvml import THROTTLE_REASONS
from orchestrator.exposition import PROCESS_METRICS, Exposition, Kind, Metric, Number, add_process

MAX_OWNERS: Final = 64
"""Maximum number of named containers of each GPU; the others count together as `other`."""
GPU_NODE: Final = "GpuNode"
NODE: Final = "Node"
CONDITION: Final = "NodeCondition"
WRITTEN: Final = (GPU_NODE, NODE, CONDITION)
RESULTS: Final = ("ok", "error")
"""How a write ends, in the words of `Publisher`."""
_OTHERS: Final = Owner("other", "other")
_GPU: Final = ("gpu", "uuid")

SOURCE_UP: Final = Metric(
    "muster_agent_source_up",
    "gauge",
    "1 if the source answers the agent: the driver (nvml) or the pod-resources socket (kubelet).",
    ("source",),
)
SAMPLES: Final = Metric("muster_agent_samples_total", "counter", "Rounds over all GPUs.")
WRITES: Final = Metric(
    "muster_agent_writes_total",
    "counter",
    "Writes to the API server, by object and result.",
    ("object", "result"),
)


def _of_a_gpu(name: str, text: str, *labels: str, kind: Kind = "gauge") -> Metric:
    return Metric(f"muster_gpu_{name}", kind, text, (*_GPU, *labels))


INFO: Final = _of_a_gpu("info", "Always 1; the labels describe the GPU.", "model", "bus_id")
HEALTHY: Final = _of_a_gpu("healthy", "1 if the GPU may be used, 0 if not.")
MEMORY_TOTAL: Final = _of_a_gpu("memory_total_bytes", "Memory that the GPU has.")
MEMORY_USED: Final = _of_a_gpu("memory_used_bytes", "Memory in use.")
UTILIZATION: Final = _of_a_gpu(
    "utilization_ratio", "Portion of the last sample period in which a kernel ran."
)
MEMORY_UTILIZATION: Final = _of_a_gpu(
    "memory_utilization_ratio", "Portion of the last sample period in which memory was read or written."
)
TEMPERATURE: Final = _of_a_gpu("temperature_celsius", "Temperature of the chip.")
POWER: Final = _of_a_gpu("power_watts", "Power drawn by the board.")
CLOCK: Final = _of_a_gpu("clock_hertz", "Clock of the multiprocessors (sm) and of the memory.", "clock")
THROTTLED: Final = _of_a_gpu("throttled", "1 if the clocks are held down for this reason.", "reason")
ECC_ERRORS: Final = _of_a_gpu(
    "ecc_errors_total", "Errors of memory since the driver was loaded.", "kind", kind="counter"
)
REMAPPED_ROWS: Final = _of_a_gpu("remapped_rows", "Rows of memory that were replaced by spare ones.", "kind")
ROW_REMAP_PENDING: Final = _of_a_gpu("row_remap_pending", "1 if a row waits for a reset to be replaced.")
ROW_REMAP_FAILED: Final = _of_a_gpu("row_remap_failed", "1 if a row could not be replaced.")
RETIRED_PAGES_PENDING: Final = _of_a_gpu(
    "retired_pages_pending", "1 if pages wait for a reset to be retired."
)
NVLINKS_UP: Final = _of_a_gpu("nvlinks_up", "Links to other GPUs and switches that work.")
NVLINK_ERRORS: Final = _of_a_gpu(
    "nvlink_errors_total", "Errors of all links of the GPU together.", "kind", kind="counter"
)
XID_ERRORS: Final = _of_a_gpu(
    "xid_errors_total",
    "Errors that the driver reported since the agent started, by number. There is no series before the first error.",
    "xid",
    kind="counter",
)
LAST_XID: Final = _of_a_gpu(
    "last_xid_timestamp_seconds",
    "Time of the last error of this number that the driver reported since the agent started.",
    "xid",
)
ALLOCATED: Final = _of_a_gpu(
    "allocated",
    "Always 1; says to which container the kubelet gave the GPU.",
    "namespace",
    "pod",
    "container",
)
IDLE_SINCE: Final = _of_a_gpu(
    "idle_since_timestamp_seconds", "Since when nothing has run on a GPU that a container holds."
)
PROCESS_MEMORY: Final = _of_a_gpu(
    "process_memory_bytes",
    "Memory of a GPU in use by the processes of a container; without a pod, by the node's own.",
    "pod_uid",
    "container_id",
)
HOST_READ: Final = Metric(
    "muster_host_fact_read", "gauge", "1 if the fact of the host was read, 0 if not.", ("fact",)
)
HOST_FAULT: Final = Metric(
    "muster_host_fault",
    "gauge",
    "1 if the fact is a fault of the host. There is no series for a fact that is not read and was no fault before.",
    ("fact",),
)
HOST_UNKNOWN_LINES: Final = Metric(
    "muster_host_unknown_kernel_lines_total",
    "counter",
    "Lines about hardware in the kernel's log that muster does not know.",
)
HOST_LINK_ERRORS: Final = Metric(
    "muster_host_link_errors_total",
    "counter",
    "Error counters of network interfaces and RDMA ports since the driver was loaded.",
    ("link", "counter"),
)
METRICS: Final = (
    SOURCE_UP, INFO, HEALTHY, MEMORY_TOTAL, MEMORY_USED, UTILIZATION, MEMORY_UTILIZATION, TEMPERATURE, POWER, CLOCK,
    THROTTLED, ECC_ERRORS, REMAPPED_ROWS, ROW_REMAP_PENDING, ROW_REMAP_FAILED, RETIRED_PAGES_PENDING, NVLINKS_UP,
    NVLINK_ERRORS, XID_ERRORS, LAST_XID, ALLOCATED, IDLE_SINCE, PROCESS_MEMORY, HOST_READ, HOST_FAULT,
    HOST_UNKNOWN_LINES, HOST_LINK_ERRORS, SAMPLES, WRITES, *PROCESS_METRICS,
)  # fmt: skip


@dataclass(slots=True)
class AgentFigures:
    """The agent's own metrics."""

    samples: int = 0
    writes: dict[tuple[str, str], int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    resident_bytes: int = 0


def render(reading: NodeReading, agent: AgentFigures, host: HostReading | None = None) -> str:
    """Return the page of all metrics. `host` is None if the host is not read."""
    page = Exposition()
    problems = (("nvml", reading.nvml_problem), ("kubelet", reading.kubelet_problem))
    page.add(SOURCE_UP, [((source,), int(not problem)) for source, problem in problems])
    gpus = [(_of(gpu), gpu) for gpu in reading.gpus]
    _of_gpus(page, gpus)
    _of_samples(page, [(gpu, known.sample) for gpu, known in gpus if known.sample is not None])
    _of_memory_errors(page, [(gpu, known.upkeep) for gpu, known in gpus])
    xids = [((*gpu, str(errors.xid)), errors) for gpu, known in gpus for errors in known.xids]
    page.add(XID_ERRORS, [(labels, errors.count) for labels, errors in xids])
    page.add(LAST_XID, [(labels, errors.last_at) for labels, errors in xids])
    _of_pods(page, gpus)
    if host is not None:
        _of_host(page, host)
    page.add(SAMPLES, [((), agent.samples)])
    # all counters begin at 0: Prometheus does not count the first value of a series as an increase
    writes = {(about, result): 0 for about in WRITTEN for result in RESULTS} | agent.writes
    page.add(WRITES, sorted(writes.items()))
    add_process(page, agent.cpu_seconds, agent.resident_bytes)
    return page.text()


def memory_by_owner(processes: Iterable[Process]) -> dict[Owner, int]:
    """Return the bytes of a GPU that the processes of each container have.

    Beyond MAX_OWNERS, the owners with the least bytes are added up as `other`.
    """
    used: dict[Owner, int] = {}
    for process in processes:
        used[process.owner] = used.get(process.owner, 0) + (process.memory_bytes or 0)
    if len(used) <= MAX_OWNERS:
        return used
    most = sorted(used, key=lambda owner: (-used[owner], owner))
    bounded = {owner: used[owner] for owner in most[:MAX_OWNERS]}
    bounded[_OTHERS] = sum(used[owner] for owner in most[MAX_OWNERS:])
    return bounded


_Labels = tuple[str, str]


def _of_gpus(page: Exposition, gpus: Sequence[tuple[_Labels, GpuReading]]) -> None:
    page.add(INFO, [((*gpu, known.gpu.model, known.gpu.bus_id), 1) for gpu, known in gpus])
    page.add(HEALTHY, [(gpu, int(not known.failure)) for gpu, known in gpus])
    page.add(MEMORY_TOTAL, [(gpu, known.gpu.memory_bytes or None) for gpu, known in gpus])


def _of_samples(page: Exposition, samples: Sequence[tuple[_Labels, Sample]]) -> None:
    page.add(MEMORY_USED, [(gpu, sample.memory_used_bytes) for gpu, sample in samples])
    page.add(UTILIZATION, [(gpu, _ratio(sample.utilization_percent)) for gpu, sample in samples])
    page.add(
        MEMORY_UTILIZATION, [(gpu, _ratio(sample.memory_utilization_percent)) for gpu, sample in samples]
    )
    page.add(TEMPERATURE, [(gpu, sample.temperature_celsius) for gpu, sample in samples])
    page.add(POWER, [(gpu, _scaled(sample.power_milliwatts, 1000)) for gpu, sample in samples])
    page.add(
        CLOCK,
        [
            ((*gpu, clock), None if mhz is None else mhz * 1_000_000)
            for gpu, sample in samples
            for clock, mhz in (("sm", sample.sm_clock_mhz), ("memory", sample.memory_clock_mhz))
        ],
    )
    page.add(
        THROTTLED,
        [
            ((*gpu, reason), int(bool(sample.throttle_bits & bit)))
            for gpu, sample in samples
            if sample.throttle_bits is not None
            for reason, bit in THROTTLE_REASONS.items()
        ],
    )


def _of_memory_errors(page: Exposition, upkeep: Sequence[tuple[_Labels, Upkeep]]) -> None:
    for metric, fields in (
        (ECC_ERRORS, {"corrected": "ecc_corrected", "uncorrected": "ecc_uncorrected"}),
        (REMAPPED_ROWS, {"corrected": "rows_remapped_corrected", "uncorrected": "rows_remapped_uncorrected"}),
        (
            NVLINK_ERRORS,
            {
                "replay": "nvlink_replay_errors",
                "recovery": "nvlink_recovery_errors",
                "crc": "nvlink_crc_errors",
            },
        ),
    ):
        page.add(
            metric,
            [
                ((*gpu, kind), getattr(figures, name))
                for gpu, figures in upkeep
                for kind, name in fields.items()
            ],
        )
    for metric, name in (
        (ROW_REMAP_PENDING, "row_remap_pending"),
        (ROW_REMAP_FAILED, "row_remap_failed"),
        (RETIRED_PAGES_PENDING, "retired_pages_pending"),
        (NVLINKS_UP, "nvlinks_up"),
    ):
        flags = [(gpu, getattr(figures, name)) for gpu, figures in upkeep]
        page.add(metric, [(gpu, None if flag is None else int(flag)) for gpu, flag in flags])


def _of_pods(page: Exposition, gpus: Sequence[tuple[_Labels, GpuReading]]) -> None:
    page.add(
        ALLOCATED,
        [
            ((*gpu, holder.namespace, holder.pod, holder.container), 1)
            for gpu, known in gpus
            for holder in known.holders
        ],
    )
    page.add(IDLE_SINCE, [(gpu, known.idle_since) for gpu, known in gpus])
    page.add(
        PROCESS_MEMORY,
        [
            ((*gpu, owner.pod_uid, owner.container_id), used)
            for gpu, known in gpus
            for owner, used in sorted(memory_by_owner(known.processes).items())
        ],
    )


def _of_host(page: Exposition, host: HostReading) -> None:
    read = {fact: fact in host.read for fact in FACTS}
    page.add(HOST_READ, [((fact,), int(is_read)) for fact, is_read in read.items()])
    page.add(
        HOST_FAULT,
        [((fact,), int(fact in host.faults)) for fact in FACTS if read[fact] or fact in host.faults],
    )
    page.add(HOST_UNKNOWN_LINES, [((), host.unknown_lines)])
    counters = [(tuple(name.split(" ", 1)), value) for name, value in sorted(host.counters.items())]
    page.add(HOST_LINK_ERRORS, counters)


def _of(reading: GpuReading) -> _Labels:
    return (str(reading.gpu.index), reading.gpu.uuid)


def _ratio(percent: int | None) -> Number:
    return _scaled(percent, 100)


def _scaled(value: int | None, divisor: int) -> Number:
    return None if value is None else value / divisor
