"""The GPUs of each project over time, with a bounded number of points so that a record and its chart stay small."""

from collections.abc import Sequence
from typing import Final

from validation.judge.events import Event
from validation.judge.state import series
from validation.report.record import Point

MAX_POINTS: Final = 3000
_PARTS: Final = MAX_POINTS // 3


def points(events: Sequence[Event]) -> list[Point]:
    """Return the points of the series, at most MAX_POINTS.

    If there are more, the time is divided into a thousand parts. Each part keeps three points: the point with the
    lowest sum over all projects, the point with the highest, and the last.
    """
    every = [Point(t_ms, allocated) for t_ms, allocated in series(events)]
    if len(every) <= MAX_POINTS:
        return every
    first_ms, span_ms = every[0].t_ms, every[-1].t_ms - every[0].t_ms + 1
    parts: dict[int, list[Point]] = {}
    for point in every:
        parts.setdefault((point.t_ms - first_ms) * _PARTS // span_ms, []).append(point)
    points = (
        point
        for part in parts.values()
        for point in {
            one.t_ms: one for one in (min(part, key=_total), max(part, key=_total), part[-1])
        }.values()
    )
    return sorted(points, key=lambda point: point.t_ms)


def _total(point: Point) -> int:
    return sum(point.allocated_milli.values())
