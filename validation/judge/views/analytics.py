"""Judges the analytics pages: the GPUs that each project held over time, compared with the events of the API server.

The answer is an array of objects. Its key `of` is `read` (the time of the read), `point` (a minute of a project from
`at` on), or `summary` (of a project).

In a run, `muster web` takes a sample each second. A point is the mean of the samples of its minute. A page may be
`LATE_MS` behind.
"""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import Final

from validation.judge import units
from validation.judge.events import AnswerSeen, Event, ProjectDeleted, ProjectSet
from validation.judge.state import State, series
from validation.judge.views.shown import Row, View, milli, names, scalar, short, text

POINT_MS: Final = 60_000
"""The duration of a point. The history has one value for each minute of the last two days (docs/reference/web.md)."""
LATE_MS: Final = 10_000
"""Maximum delay of the page behind the cluster."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
Held = Sequence[tuple[int, int]]
"""The GPUs of a project over time: pairs of a start, in milliseconds of the run, and the thousandths from then on."""


def compare(events: Sequence[Event], answer: AnswerSeen, state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences between the page and the allocation over time.

    Also compare its summary with the present allocation.
    """
    read = [row.get("at") for row in rows if text(row, "of") == "read"]
    if len(read) != 1 or not isinstance(read[0], int):
        yield "it is not said when the page was read"
        return
    begun_ms = read[0] - answer.t_ms
    points = series(events)
    made_ms = _made(events)
    yield from _now(state, [row for row in rows if text(row, "of") == "summary"])
    for project in sorted(state.quotas):
        held = [(t_ms, allocated.get(project, 0)) for t_ms, allocated in points]
        ours = [row for row in rows if text(row, "of") == "point" and text(row, "project") == project]
        judged = 0
        for row in ours:
            at = row.get("at")
            if not isinstance(at, int):
                yield f"{project}: a point is at {short(at)}"
                continue
            start_ms = max(at * 1000 - begun_ms, made_ms.get(project, 0))
            end_ms = min(at * 1000 - begun_ms + POINT_MS, answer.t_ms)
            if end_ms - start_ms >= LATE_MS:
                judged += 1
                yield from _point(project, row, held, start_ms, end_ms)
        if not judged:
            yield f"{project}: the GPUs that it held over time are not shown"


def _made(events: Sequence[Event]) -> dict[str, int]:
    """Return the time of creation of each existing project."""
    made: dict[str, int] = {}
    for event in events:
        if isinstance(event, ProjectSet):
            made.setdefault(event.project, event.t_ms)
        elif isinstance(event, ProjectDeleted):
            made.pop(event.project, None)
    return made


def _now(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences in the GPUs that each project holds now, and in its quota."""
    projects = state.quotas.keys() | state.deleted_projects
    ours = {text(row, "project"): row for row in rows if text(row, "project") in projects}
    yield from names(
        "project",
        [text(row, "project") for row in rows if text(row, "project") in state.quotas],
        list(state.quotas),
    )
    held = state.allocated_milli()
    for name in sorted(ours.keys() & state.quotas.keys()):
        for column, actual in (("GPUs NOW", held[name]), ("QUOTA", state.quotas[name])):
            if milli(ours[name].get(column)) != actual:
                yield f"{name}: {column} is {short(ours[name].get(column))}, not {units.gpus(actual)}"


def _point(project: str, row: Row, held: Held, start_ms: int, end_ms: int) -> Iterator[str]:
    """Yield the difference if a point is not the mean allocation of its minute.

    The page may show a change `LATE_MS` late.
    """
    shown = text(row, "GPUs ALLOCATED")
    sum_milli, values = _between(held, start_ms, end_ms)
    near = _between(held, start_ms - LATE_MS, end_ms + LATE_MS)[1]
    length_ms = end_ms - start_ms
    changed_milli = sum(abs(after - before) for before, after in itertools.pairwise(near))
    mean_milli = Fraction(sum_milli, length_ms)
    allowed_milli = Fraction(changed_milli * LATE_MS, length_ms) + 1
    number = Fraction(shown) * 1000 if _NUMBER.fullmatch(shown) else None
    if (
        number is None
        or abs(number - mean_milli) > allowed_milli
        or not min(near) - 1 <= number <= max(near) + 1
    ):
        yield (
            f"{project}: GPUs ALLOCATED is {short(shown)} for {length_ms // 1000} s, "
            f"not {units.gpus(round(mean_milli))} by {units.gpus(int(allowed_milli))} at most; "
            f"it held {units.gpus(min(values))} to {units.gpus(max(values))}"
        )


def _between(held: Held, start_ms: int, end_ms: int) -> tuple[int, list[int]]:
    """Return the thousandths of GPUs summed over the milliseconds of that time, and the values in order of time."""
    total, values = 0, []
    ends = [t_ms for t_ms, _ in held[1:]] + [end_ms]
    for (from_ms, value), until_ms in zip(held, ends, strict=False):
        length_ms = min(max(until_ms, from_ms), end_ms) - max(from_ms, start_ms)
        if length_ms > 0:
            total += value * length_ms
            values.append(value)
    return total, values or [0]


def keep(rows: Sequence[Row], projects: Collection[str]) -> list[dict[str, object]]:
    """Return the rows of these projects, with only their judged cells."""
    columns = ("of", "at", "project", "GPUs ALLOCATED", "GPUs NOW", "QUOTA")
    return [
        {key: scalar(row[key]) for key in columns if key in row}
        for row in rows
        if text(row, "of") == "read" or text(row, "project") in projects
    ]


def _nothing(_state: State, _rows: Sequence[Row]) -> Iterator[str]:
    yield from ()


VIEW: Final = View(
    "GET /analytics-over-time.csv and /analytics.csv of muster web",
    "The pages show how many GPUs each project held over time, and holds now",
    _nothing,
    {},
    page="/analytics-over-time.csv?hours=1",
    keep=keep,
    past=compare,
)
