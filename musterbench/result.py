"""The results of a benchmark, and their output."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from rich.console import Console
from rich.table import Table

_NOTES_ON_A_LINE: Final = 3
"""Maximum number of notes that are printed on one line; more are printed one below the other."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case. `peak_rss_bytes` is the peak memory of the measured process. `problem` is the error; None without one.

    `figures` are further numbers of the case, by name with the unit in it. `program` is the version that the measured
    program prints, if that program is not muster alone.
    """

    case: str
    nodes: int
    gpus: int
    jobs: int
    seconds: float
    peak_rss_bytes: int
    problem: str | None
    figures: dict[str, float]
    program: str = ""

    def with_figures(self, figures: dict[str, float]) -> Self:
        """The result with further figures."""
        return replace(self, figures={**self.figures, **figures})

    def line(self) -> str:
        """The result as one line."""
        notes = ", ".join((f"RSS {self.peak_rss_bytes / 2**20:.0f} MiB", *self.notes()))
        return f"{self.case}, {self.nodes} nodes: {self.jobs} jobs in {self.seconds:.4g} s, {notes}"

    def notes(self) -> list[str]:
        """Return the problem, the program, and the figures with their names."""
        texts = [text for text in (self.problem, self.program) if text]
        return texts + [f"{name} {value:.4g}" for name, value in self.figures.items()]

    def as_json(self) -> dict[str, Any]:
        """The result as one flat mapping."""
        fields = asdict(self)
        figures = fields.pop("figures")
        notes = {name: fields.pop(name) for name in ("problem", "program")}
        return {**fields, **figures, **{name: note for name, note in notes.items() if note}}


def with_increase(result: Result, before: Result | None) -> Result:
    """Return the result with the ratios of its time, nodes and memory to those of the result before."""
    if before is None:
        return result
    figures = {
        "times_before": result.seconds / before.seconds,
        "work_before": result.nodes / before.nodes,
        "rss_before": result.peak_rss_bytes / before.peak_rss_bytes,
    }
    return result.with_figures(figures)


def machine() -> dict[str, Any]:
    """The machine of the figures."""
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def show(results: Sequence[Result]) -> None:
    """Print the results as a table."""
    table = Table(box=None, header_style="bold")
    for name in ("case", "nodes", "GPUs", "jobs", "ms", "RSS MiB", ""):
        table.add_column(name, justify="left" if name in ("case", "") else "right")
    for result in results:
        notes = result.notes()
        table.add_row(
            result.case,
            str(result.nodes),
            str(result.gpus),
            str(result.jobs),
            f"{result.seconds * 1000:.1f}",
            f"{result.peak_rss_bytes / 2**20:.0f}",
            (", " if len(notes) <= _NOTES_ON_A_LINE else "\n").join(notes),
        )
    Console().print(table)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
