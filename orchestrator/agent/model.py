"""The agent's model of the GPUs of its node: plain data, exact integers, None for unknown values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, and its constant properties while the driver is loaded. `minor` is the N of `/dev/nvidiaN`."""

    index: int
    uuid: str = ""
    model: str = ""
    bus_id: str = ""
    minor: int | None = None
    memory_bytes: int = 0
    nvlinks: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of every second."""

    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_bits: int | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Values with rare changes: errors of memory since the driver was loaded, rows, pages, links."""

    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    retired_pages_pending: bool | None = None
    nvlinks_up: int | None = None
    nvlink_replay_errors: int | None = None
    nvlink_recovery_errors: int | None = None
    nvlink_crc_errors: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The owner of a process, by its cgroup: a pod and a container by their ids; "" outside of pods."""

    pod_uid: str = ""
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU. `memory_bytes` is None if the driver does not report it."""

    pid: int
    memory_bytes: int | None
    owner: Owner = Owner()


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container to which the kubelet gave a GPU."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class XidErrors:
    """The number of reports of an Xid since the agent started, and the time of the last one in seconds since the
    epoch.
    """

    xid: int
    count: int
    last_at: int


@dataclass(frozen=True, slots=True)
class GpuReading:
    """All that is known of one GPU now. `failure` says why it must not be used; `sample` is None if it does not answer.

    `is_lost`: the GPU does not answer, or answers again for less than a minute.

    `idle_since` is the start of the idle time of a GPU in use, in seconds since the epoch.
    """

    gpu: Gpu
    sample: Sample | None = None
    upkeep: Upkeep = Upkeep()
    processes: tuple[Process, ...] = ()
    holders: tuple[Holder, ...] = ()
    failure: str = ""
    xids: tuple[XidErrors, ...] = ()
    mean_utilization_percent: int | None = None
    idle_since: int | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The GPUs of the node by index.

    `nvml_problem` is the reason if there are no GPUs, `kubelet_problem` the reason if the holders are outdated.
    """

    gpus: tuple[GpuReading, ...] = ()
    driver_version: str = ""
    nvml_problem: str = ""
    kubelet_problem: str = ""
