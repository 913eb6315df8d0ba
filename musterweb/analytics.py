"""The page of analytics: GPUs, their use and waiting times of projects over time, and evictions by rule.

A history has no access control, so the page filters it by the projects that the person may see now. It reads evictions
with the person's token.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from musterweb.errors import HistoryAway
from musterweb.history_model import OTHERS, ProjectLines, Record, Span, Values
from musterweb.page import Page, Visit, address, left_out
from musterweb.person import MAX_SCOPES
from musterweb.table import Table
from orchestrator.cli.output import age
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.cluster.quantity import format_time, parse_time
from orchestrator.control.report.audit import MAX_RECORDS, EvictionRecord, newest_evictions
from orchestrator.errors import UsageError
from orchestrator.views.job_gpus import GpusOfJobs

PERIODS: Final = {
    "1": "an hour",
    "6": "6 hours",
    "24": "a day",
    "168": "a week",
    "720": "30 days",
    "8760": "a year",
}
DEFAULT_PERIOD: Final = "24"
LINES: Final = 8
"""Maximum number of projects with a line in a chart, those with the most GPUs first. The tables have all projects."""
FILE_PROJECTS: Final = 100
"""Maximum number of projects in a file of points, those with the most GPUs first; more would take seconds."""
SUMMARY_HEADER: Final = (
    "PROJECT", "GPUs NOW", "GPUs MEAN", "GPUs MOST", "QUOTA", "GPU HOURS", "UTILIZATION", "IDLE GPUs MEAN",
    "JOBS STARTED", "WAIT MEAN", "WAIT LONGEST",
)  # fmt: skip
OVER_TIME_HEADER: Final = (
    "TIME", "PROJECT", "GPUs ALLOCATED", "QUOTA", "GPUs PENDING", "GPUs IDLE", "UTILIZATION", "JOBS STARTED",
    "WAIT MEAN SECONDS", "WAIT LONGEST SECONDS",
)  # fmt: skip
EVICTIONS_HEADER: Final = ("AT", "PROJECT", "JOB", "GPUs", "RULE", "FOR", "NODE", "MESSAGE")
NO_HISTORY: Final = (
    "No history is recorded: start muster web with --prometheus URL, or with --history FILE and "
    "--history-token FILE."
)
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Chart:
    """A line chart over time. `data` is the JSON for the script of the page."""

    name: str
    title: str
    data: str


async def analytics_page(visit: Visit) -> Page:
    """Return the page with the figures of a period."""
    hours = visit.query.get("hours", DEFAULT_PERIOD)
    if hours not in PERIODS:
        raise UsageError(f"hours {hours!r} is not possible: choose one of {', '.join(PERIODS)}")
    span = Span.last(int(hours), visit.now_us / 1_000_000)
    record, problems = await _record(visit, span)
    charts: list[Chart] = []
    tables: list[Table] = []
    files: list[Table] = []
    query = {"hours": hours}
    if record is not None:
        charts = _charts(record)
        summary = _summary(visit, record, query)
        tables.append(summary)
        rows = _Rows(record)
        files += [summary, Table("over-time", "Over time", OVER_TIME_HEADER, rows)]
    evictions = await _evictions(visit, span, query)
    if evictions is not None:
        tables.append(evictions)
        files.append(evictions)
    content = {
        "periods": PERIODS,
        "hours": hours,
        "notes": [*problems, *left_out(visit)],
        "charts": charts,
        "tables": tables,
        "over_time": address("/analytics-over-time.csv", **query) if record is not None else "",
        "source": visit.history.source if visit.history is not None else "",
        "as_of": _time(record.as_of) if record is not None and record.as_of is not None else "",
        "is_current": record is not None and not record.problems,
    }
    return Page("Analytics", "analytics.html.j2", content, tuple(files))


async def _record(visit: Visit, span: Span) -> tuple[Record | None, list[str]]:
    """Return the visible figures of the history, and remarks about them."""
    if visit.history is None:
        return None, [NO_HISTORY]
    try:
        record = await visit.history.read(span, _visible(visit))
    except HistoryAway as error:
        return None, [f"{error}."]
    if not record.projects and not record.problems:
        return record, [*record.problems, "There is nothing of your projects in this period."]
    return record, list(record.problems)


def _visible(visit: Visit) -> frozenset[str] | None:
    """Return the projects whose jobs the person may see; None means all."""
    rights = visit.person.rights
    if rights is None:
        return frozenset()
    if rights.scopes is None and rights.nodes:
        return None
    if rights.scopes is None:
        return frozenset(view.metadata.name for view in visit.sight.projects or ())
    return frozenset(scope.project for scope in rights.scopes)


# --- charts ------------------------------------------------------------------------------------------------


def _charts(record: Record) -> list[Chart]:
    lines = {name: record.projects[name] for name in _most(record)[:LINES]}
    cluster = record.cluster
    charts = []
    if cluster is not None:
        charts.append(
            _chart(
                "cluster", "GPUs of the cluster", record.span,
                {"all": cluster.total, "allocated": cluster.allocated},
            )
        )  # fmt: skip
        busy = {"mean": cluster.utilization}
        charts.append(
            _chart("busy", "Utilization of the cluster's GPUs", record.span, busy, unit="%", scale=100)
        )

    def of_projects(
        name: str, title: str, values: Callable[[ProjectLines], Values], unit: str = "", scale: float = 1
    ) -> Chart:
        return _chart(
            name,
            title,
            record.span,
            {_called(of): values(line) for of, line in lines.items()},
            unit=unit,
            scale=scale,
        )

    return [
        *charts,
        of_projects("allocated", "GPUs allocated", lambda line: line.allocated),
        of_projects("utilization", "Utilization of allocated GPUs", lambda line: line.utilization, "%", 100),
        of_projects("idle", "GPUs allocated, but idle", lambda line: line.idle),
        of_projects("pending", "GPUs that waiting jobs ask for", lambda line: line.pending),
        of_projects(
            "waits", "Longest wait", lambda line: line.oldest_wait, " min", 1 / 60
        ),
    ]  # fmt: skip


def _most(record: Record) -> list[str]:
    """Return the projects, the one with the most allocated GPUs first."""
    held = {name: _mean(lines.allocated) or 0.0 for name, lines in record.projects.items()}
    return sorted(held, key=lambda name: (-held[name], name))


def _chart(
    name: str, title: str, span: Span, lines: Mapping[str, Values], *, unit: str = "", scale: float = 1
) -> Chart:
    series = [
        {"name": of, "values": [None if value is None else round(value * scale, 3) for value in values]}
        for of, values in lines.items()
        if any(value is not None for value in values)
    ]
    data = {"times": list(span.times), "series": series, "unit": unit}
    return Chart(name, title, json.dumps(data) if series else "")


# --- tables ------------------------------------------------------------------------------------------------


def _summary(visit: Visit, record: Record, query: Mapping[str, str]) -> Table:
    now_milli: Counter[str] = Counter()
    counts = GpusOfJobs(visit.sight.nodes or ())
    for view in visit.sight.jobs:
        now_milli[view.project] += counts.held_milli(view)
    rows = [
        _summary_row(name, lines, record.span, "" if name == OTHERS else format_gpu(now_milli[name]))
        for name, lines in record.projects.items()
    ]
    return Table(
        "summary", f"Projects over {PERIODS[query['hours']]}", SUMMARY_HEADER, rows,
        csv=address("/analytics.csv", **query), empty="No project has figures in this period.",
        note="GPUs now are those that the cluster says; the rest is of the history.",
    )  # fmt: skip


def _summary_row(name: str, lines: ProjectLines, span: Span, now: str) -> list[str]:
    held = [value for value in lines.allocated if value is not None]
    started = _sum(lines.started)
    waited = _sum(lines.wait_seconds)
    longest = max((value for value in lines.oldest_wait if value is not None), default=None)
    quota = next((value for value in reversed(lines.quota) if value is not None), None)
    return [
        _called(name),
        now,
        _gpus(_mean(lines.allocated)),
        _gpus(max(held, default=None)),
        _gpus(quota),
        _gpus(sum(held) * span.step / _HOUR if held else None),
        _percent(_mean(lines.utilization)),
        _gpus(_mean(lines.idle)),
        "" if started is None else str(round(started)),
        age(int(waited / started)) if waited is not None and started else "",
        "" if longest is None else age(int(longest)),
    ]


class _Rows(Sequence[Sequence[str]]):
    """The rows of all points.

    Each row is made when it is read, because with many projects all rows need more memory than the page.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._names = sorted(_most(record)[:FILE_PROJECTS])
        self._times = record.span.times

    def __len__(self) -> int:
        return len(self._names) * len(self._times)

    def __getitem__(self, place: object) -> Sequence[str]:
        """Return the row of one project at one time."""
        if not isinstance(place, int) or not 0 <= place < len(self):
            raise IndexError(place)
        at, of = divmod(place, len(self._names))
        name = self._names[of]
        lines = self._record.projects[name]
        started, waited = lines.started[at], lines.wait_seconds[at]
        return [
            _time(self._times[at]),
            _called(name),
            _figure(lines.allocated[at]),
            _figure(lines.quota[at]),
            _figure(lines.pending[at]),
            _figure(lines.idle[at]),
            _figure(lines.utilization[at]),
            _figure(started),
            _figure(waited / started if waited is not None and started else None),
            _figure(lines.oldest_wait[at]),
        ]


async def _evictions(visit: Visit, span: Span, query: Mapping[str, str]) -> Table | None:
    """Return the newest evictions of the period that the person may see; None if the person may see no evictions in
    any project.
    """
    rights = visit.person.rights
    namespaces: Iterable[str | None] = (
        (None,)
        if rights is None or rights.scopes is None
        else [scope.namespace for scope in rights.scopes[:MAX_SCOPES]]
    )
    try:
        records = await newest_evictions(visit.person.client.transport, namespaces)
    except (Forbidden, NotFound):
        return None
    start_us, end_us = span.start * 1_000_000, visit.now_us
    chosen = [one for one in records if start_us <= parse_time(one.at) <= end_us]
    newest = list(reversed(chosen))
    rules = Counter(one.rule for one in newest)
    return Table(
        "evictions", "Evictions", EVICTIONS_HEADER, [_eviction_row(one) for one in newest],
        csv=address("/evictions.csv", **query), empty="No pod was evicted in this period.",
        note=", ".join(f"{rule or 'no rule'}: {count}" for rule, count in sorted(rules.items()))
        + (f"; the newest {MAX_RECORDS} on record" if len(newest) == MAX_RECORDS else ""),
    )  # fmt: skip


def _eviction_row(one: EvictionRecord) -> list[str]:
    beneficiary = f"{one.beneficiary} of {one.beneficiary_project}" if one.beneficiary else ""
    at = format_time(parse_time(one.at), places=0)
    return [
        at, one.project, one.workload, format_gpu(one.gpu_milli), one.rule, beneficiary, one.node, one.message,
    ]  # fmt: skip


# --- words -------------------------------------------------------------------------------------------------


def _called(project: str) -> str:
    return "other projects" if project == OTHERS else project


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _mean(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _gpus(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.0f}%"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
