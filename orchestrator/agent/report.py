"""The parts of a reading for the API, and the changes that are worth a write. Pure.

Values for decisions (failures, holders, processes, idle) are written when they change. Figures are written after a
large change, at most every 15 seconds. Everything is written every 5 minutes, so that readers know that the agent
lives.
"""

from collections import Counter
from typing import Final

from msgspec.structs import replace

from orchestrator.agent.failures import lasting
from orchestrator.agent.metrics import memory_by_owner
from orchestrator.agent.model import Gpu, GpuReading, NodeReading
from orchestrator.cluster.gpu_nodes import GpuHolder, GpuNodeSpec, GpuState, GpuUser
from orchestrator.cluster.quantity import format_time

FIGURES_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 300.0
MAX_HOLDERS: Final = 64
_STEP_PERCENT: Final = 5
_STEPS_OF_MEMORY: Final = 64
_MIB: Final = 1 << 20


def spec_of(reading: NodeReading, boot_id: str) -> GpuNodeSpec:
    """Return the reading in the form of a GpuNode, without its time."""
    return GpuNodeSpec(
        boot_id=boot_id,
        driver_version=reading.driver_version,
        problem=reading.nvml_problem,
        gpus=[_state(gpu) for gpu in reading.gpus],
    )


def failed_gpus(reading: NodeReading) -> str:
    """Return the indices of the GPUs that must not be used, in the form of the node's annotation: `0,3`."""
    return ",".join(str(gpu.gpu.index) for gpu in reading.gpus if gpu.failure)


def lost_gpus(reading: NodeReading) -> str:
    """Return the indices of the failed GPUs that do not answer, in the same form."""
    return ",".join(str(gpu.gpu.index) for gpu in reading.gpus if gpu.is_lost)


def known_gpus(spec: GpuNodeSpec, boot_id: str) -> dict[int, tuple[Gpu, str]]:
    """Return the GPUs in the report of the previous agent process, with their lasting failures.

    Empty if the node has restarted since then, because its GPUs may be different ones.
    """
    if not boot_id or spec.boot_id != boot_id:
        return {}
    return {
        state.index: (
            Gpu(state.index, state.uuid, state.model, state.bus_id, memory_bytes=state.memory_mib * _MIB),
            lasting(state.failure),
        )
        for state in spec.gpus
    }


class Changes:
    """Decides which changes are worth a write; times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._written: GpuNodeSpec | None = None
        self._at = 0.0

    def next(self, spec: GpuNodeSpec, now: float) -> GpuNodeSpec | None:
        """Return the value to write now; None if no change is worth a write."""
        before = self._written
        if before is not None and not _is_due(before, spec, now - self._at):
            return None
        self._written, self._at = spec, now
        return spec


def stamped(spec: GpuNodeSpec, epoch_seconds: float) -> GpuNodeSpec:
    """Return the report with the time at which it was read."""
    return replace(spec, observed_at=_timestamp(epoch_seconds))


def _state(reading: GpuReading) -> GpuState:
    gpu, sample = reading.gpu, reading.sample
    used = sample.memory_used_bytes if sample else None
    processes = Counter(process.owner for process in reading.processes)
    return GpuState(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        bus_id=gpu.bus_id,
        memory_mib=gpu.memory_bytes // _MIB,
        memory_used_mib=None if used is None else used // _MIB,
        utilization_percent=reading.mean_utilization_percent,
        failure=reading.failure,
        idle_since="" if reading.idle_since is None else _timestamp(reading.idle_since),
        holders=[
            GpuHolder(holder.namespace, holder.pod, holder.container)
            for holder in reading.holders[:MAX_HOLDERS]
        ],
        users=[
            GpuUser(owner.pod_uid, owner.container_id, used_bytes // _MIB, processes[owner])
            for owner, used_bytes in sorted(memory_by_owner(reading.processes).items())
        ],
    )


def _is_due(before: GpuNodeSpec, after: GpuNodeSpec, seconds: float) -> bool:
    """Return whether `after` must be written, if `before` was written `seconds` ago."""
    if seconds >= RENEW_SECONDS or _facts(before) != _facts(after):
        return True
    return seconds >= FIGURES_SECONDS and _moved(before, after)


def _facts(spec: GpuNodeSpec) -> GpuNodeSpec:
    """Return the report without its figures, such as used memory and utilization."""
    return replace(
        spec,
        gpus=[
            replace(
                gpu,
                memory_used_mib=None,
                utilization_percent=None,
                users=[replace(user, memory_mib=0, processes=0) for user in gpu.users],
            )
            for gpu in spec.gpus
        ],
    )


def _moved(before: GpuNodeSpec, after: GpuNodeSpec) -> bool:
    """Return whether any figure differs enough from the written one. The facts of both reports must be equal."""
    return any(
        _far(old.utilization_percent, new.utilization_percent, _STEP_PERCENT)
        or _far(old.memory_used_mib, new.memory_used_mib, max(1, new.memory_mib // _STEPS_OF_MEMORY))
        or _users_moved(old, new)
        for old, new in zip(before.gpus, after.gpus, strict=True)
    )


def _users_moved(before: GpuState, after: GpuState) -> bool:
    step = max(1, after.memory_mib // _STEPS_OF_MEMORY)
    return any(
        _far(old.memory_mib, new.memory_mib, step) or old.processes != new.processes
        for old, new in zip(before.users, after.users, strict=True)
    )


def _far(before: int | None, after: int | None, step: int) -> bool:
    """Return whether the figures differ by at least `step`, or only one of them is 0 or None."""
    if before is None or after is None:
        return before is not after
    return abs(before - after) >= step or (before == 0) != (after == 0)


def _timestamp(epoch_seconds: float) -> str:
    return format_time(int(epoch_seconds) * 1_000_000, places=0)
