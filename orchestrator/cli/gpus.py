"""GPUs on the command line: the rows of `top -d`, `get node` and `get job`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.cli.output import UNKNOWN, amount

if TYPE_CHECKING:
    from orchestrator.views.gpus import GpuUse, GpuView
    from orchestrator.views.jobs import WorkloadView

GPU_HEADER: Final = ("GPU", "UTILIZATION", "MEMORY", "MEMORY USAGE", "IDLE TIME", "HEALTH", "UUID", "PODS")
JOB_GPU_HEADER: Final = ("NODE", *GPU_HEADER[:-1])
USE_HEADER: Final = ("GPU(Utilization)", "GPUMEMORY(Total)", "GPUMEMORY(Used)", "GPU(Idle)")


def gpu_row(gpu: "GpuView") -> Sequence[str]:
    """Return the cells of one GPU of a node."""
    return (
        str(gpu.index),
        percent(gpu.utilization_percent),
        amount(gpu.memory_bytes or None),
        amount(gpu.memory_used_bytes),
        clock(gpu.idle_seconds),
        gpu.failure or "healthy",
        gpu.uuid,
        ",".join(gpu.holders),
    )


def job_gpu_rows(gpus: Iterable["GpuView"]) -> list[Sequence[str]]:
    """Return the cells of the GPUs of a job, without the pods."""
    return [(gpu.node, *gpu_row(gpu)[:-1]) for gpu in gpus]


def use_cells(use: "GpuUse") -> Sequence[str]:
    """Return the cells of `USE_HEADER`."""
    return (
        percent(use.utilization_percent),
        amount(use.memory_bytes),
        amount(use.memory_used_bytes),
        clock(use.idle_seconds),
    )


def devices_text(view: "WorkloadView", gpus: Iterable["GpuView"]) -> str:
    """Return the GPUs of a job by node and index: `dgx1-1:0,3 dgx1-2:5`.

    `gpus` are those that agents report. Without them, the operator's annotations of the pods count.
    """
    from orchestrator.views.gpus import bound_devices

    by_node: dict[str, set[int]] = {}
    for node, index in [(gpu.node, gpu.index) for gpu in gpus] or bound_devices(view.pods):
        by_node.setdefault(node, set()).add(index)
    return " ".join(
        f"{node}:{','.join(map(str, sorted(indices)))}" for node, indices in sorted(by_node.items())
    )


def percent(number: int | None) -> str:
    """Return a number of percent, or `-`."""
    return UNKNOWN if number is None else f"{number}%"


def clock(seconds: int | None) -> str:
    """Return a duration as `hh:mm:ss`, or `-`.

    Example: `clock(3725)` returns `'01:02:05'`.
    """
    if seconds is None:
        return UNKNOWN
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
