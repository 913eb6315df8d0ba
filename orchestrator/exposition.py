"""Declares metrics, and renders pages of their values in Prometheus' text format, version 0.0.4.

A metric is declared once, with its name, kind, text and labels; docs/reference/metrics.md is made from the
declarations.
"""

import resource
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_STATM: Final = Path("/proc/self/statm")

Kind = Literal["gauge", "counter", "histogram"]
Number = int | float | None


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `buckets` are the upper bounds of a histogram, without the last one, which is infinite."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its time series: a histogram has three."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


@dataclass(slots=True)
class Distribution:
    """The number of observations in each bucket, and the sum of all observations. `counts` has one more entry than
    `bounds`.
    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Exposition:
    """A page of metrics; each is described once, before its values."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, metric: Metric, values: Iterable[tuple[Sequence[str], Number]]) -> None:
        """Add a metric with its values, each with the values of its labels. If there are no values, add nothing."""
        lines = [
            f"{metric.name}{_labels(metric.labels, labels)} {_number(value)}"
            for labels, value in values
            if value is not None
        ]
        self._describe(metric, lines)

    def add_histogram(
        self, metric: Metric, distributions: Iterable[tuple[Sequence[str], Distribution]]
    ) -> None:
        """Add a histogram with its distributions, each with the values of its labels."""
        lines = []
        for labels, distribution in distributions:
            bounds = [*(_number(bound) for bound in distribution.bounds), "+Inf"]
            counts = list(accumulate(distribution.counts))
            for bound, count in zip(bounds, counts, strict=True):
                marks = _labels((*metric.labels, "le"), (*labels, bound))
                lines.append(f"{metric.name}_bucket{marks} {count}")
            marks = _labels(metric.labels, labels)
            lines.append(f"{metric.name}_sum{marks} {_number(distribution.total)}")
            lines.append(f"{metric.name}_count{marks} {counts[-1]}")
        self._describe(metric, lines)

    def text(self) -> str:
        """Return the text of the page."""
        return "\n".join(self._lines) + "\n"

    def _describe(self, metric: Metric, lines: Sequence[str]) -> None:
        if lines:
            self._lines += [
                f"# HELP {metric.name} {metric.text}",
                f"# TYPE {metric.name} {metric.kind}",
                *lines,
            ]


CPU_SECONDS: Final = Metric("process_cpu_seconds_total", "counter", "Processor time used.")
RESIDENT_BYTES: Final = Metric("process_resident_memory_bytes", "gauge", "Resident memory.")
PROCESS_METRICS: Final = (CPU_SECONDS, RESIDENT_BYTES)


def add_process(page: Exposition, cpu_seconds: float, resident_bytes: int) -> None:
    """Add the process's use of the machine."""
    page.add(CPU_SECONDS, [((), cpu_seconds)])
    page.add(RESIDENT_BYTES, [((), resident_bytes)])


def cpu_seconds() -> float:
    """Return how much processor time this process has used."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + pairs + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.10g}"
