"""Reads the history from a Prometheus with muster's recording rules. Checks every value of an answer.

The caller decides which projects the person may see. This module asks for those alone, and drops all others from the
answer.
"""

import asyncio
import json
import math
import re
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from musterweb.errors import HistoryAway
from musterweb.history_model import (
    CURRENT_SECONDS,
    OTHERS,
    PROJECT_LINES,
    ClusterLines,
    ProjectLines,
    Record,
    Span,
    Values,
)

LIMIT_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 32 << 20
MAX_NAMED: Final = 200
"""Maximum number of projects in a request, so that it does not become too long. If there are more, the request is for
all projects, and this module filters the answer.
"""
MAX_SERIES: Final = 2000
"""Maximum number of projects in an answer, because each takes memory."""
MAX_CLOCK_SECONDS: Final = 60.0
_QUERIES_AT_ONCE: Final = 4
_SHORTEST_MEAN: Final = 120
"""Minimum window in seconds for a mean: Prometheus evaluates the rules each minute, and a shorter window can be empty.

If steps are shorter, windows overlap. Means and maxima stay correct, but sums would count twice.
"""
_SHORTEST_LOOKBACK: Final = 300
"""Minimum window in seconds for the value of a counter, because scrapes can fail. For a longer step it is the step."""
_PROJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def _increase(counter: str) -> str:
    """Return the query for the increase of a counter, by project, in the step before each time.

    `increase` alone extrapolates, and misses the increase between the last value of one window and the first of the
    next. This query begins each step with the last value of the previous step, so the sum over a span equals the
    counted number.

    A series that is new, or lower than one step ago, began at 0 if its operator led one step ago. If the operator did
    not lead then, or the counter was reset within the step, the query uses `increase`.
    """
    series = counter + "{match}"
    newest = f"last_over_time({series}[{{lookback}}s])"
    before = f"last_over_time({series}[{{lookback}}s] offset {{step}}s)"
    began = f"({newest} and on (instance) muster_operator_last_decision_timestamp_seconds offset {{step}}s)"
    steady = f"(({newest} - {before} >= 0 or {began}) unless resets({series}[{{step}}s]) > 0)"
    return f"sum by (project) ({steady} or increase({series}[{{step}}s]))"


PROJECT_QUERIES: Final[Mapping[str, str]] = {
    "allocated": "avg_over_time(project:muster_gpus:allocated{match}[{window}s])",
    "quota": "avg_over_time(project:muster_gpus:quota{match}[{window}s])",
    "pending": "avg_over_time(project:muster_gpus:pending{match}[{window}s])",
    "idle": "avg_over_time(project:muster_gpus:idle{match}[{window}s])",
    "utilization": "avg_over_time(project:muster_gpu_utilization:ratio{match}[{window}s])",
    "wait_seconds": _increase("muster_project_wait_seconds_sum"),
    "started": _increase("muster_project_wait_seconds_count"),
    "oldest_wait": "max_over_time(project:muster_pending_seconds:oldest{match}[{window}s])",
}
CLUSTER_QUERIES: Final[Mapping[str, str]] = {
    "total": "avg_over_time(cluster:muster_gpus:total[{window}s])",
    "allocated": "avg_over_time(cluster:muster_gpus:allocated[{window}s])",
    "utilization": "avg_over_time(cluster:muster_gpu_utilization:ratio[{window}s])",
}
NEWEST_QUERY: Final = "max(muster_operator_last_decision_timestamp_seconds)"
"""Query for the time at which the operator made the scraped figures. An old time means that the operator stands still,
or that Prometheus does not scrape it.
"""
_GREATEST: Final = {"utilization": 1.0}
_POSSIBLE: Final = 1e12
_LATEST: Final = 253_402_300_799
"""The end of the year 9999, the last year of `datetime`."""


class PrometheusHistory:
    """Reads a Prometheus at a URL. `clock` returns seconds since the epoch."""

    def __init__(
        self, url: str, *, clock: Callable[[], float] = time.time, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(_QUERIES_AT_ONCE)
        self.source = f"Prometheus at {urlsplit(url).hostname}"

    async def start(self) -> None:
        """Open the pool of connections."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context()),
            timeout=aiohttp.ClientTimeout(self._limit_seconds),
        )

    async def close(self) -> None:
        """Close the pool of connections."""
        if self._session is not None:
            await self._session.close()

    async def read(self, span: Span, projects: frozenset[str] | None) -> Record:
        """Return the figures of these projects. None means all projects and the cluster. Raises HistoryAway."""
        if projects is not None and not projects:
            return Record(span, {}, None, None)
        doubts = _Doubts()
        try:
            async with asyncio.timeout(self._limit_seconds), asyncio.TaskGroup() as group:
                match = _matcher(projects)
                lines = {
                    name: group.create_task(self._lines(_filled(text, match, span), span, name, doubts))
                    for name, text in PROJECT_QUERIES.items()
                }
                cluster = {
                    name: group.create_task(self._lines(_filled(text, "", span), span, name, doubts))
                    for name, text in (CLUSTER_QUERIES.items() if projects is None else ())
                }
                newest = group.create_task(self._newest())
        except TimeoutError as error:
            raise HistoryAway(
                f"{self.source} has not answered within {self._limit_seconds:g} seconds"
            ) from error
        except ExceptionGroup as errors:
            away, others = errors.split(HistoryAway)
            if away is None or others is not None:
                raise
            first = away.exceptions[0]
            raise HistoryAway(str(first)) from errors
        read = {name: task.result() for name, task in lines.items()}
        of_projects = _of_projects(read, span, projects, doubts)
        of_cluster = {name: next(iter(task.result().values()), None) for name, task in cluster.items()}
        as_of = newest.result()
        return Record(
            span,
            of_projects,
            _cluster(of_cluster, span) if projects is None else None,
            as_of,
            (*_staleness(self.source, as_of, self._clock()), *doubts.sentences(self.source)),
        )

    async def _lines(
        self, query: str, span: Span, name: str, doubts: "_Doubts"
    ) -> dict[str, list[float | None]]:
        """Return the values at the times of the span, by project. A series without a project has the key ""."""
        words = {"query": query, "start": str(span.start), "end": str(span.end), "step": str(span.step)}
        result = await self._query("query_range", words, "matrix")
        if len(result) > MAX_SERIES:
            raise HistoryAway(f"{self.source} has figures of more than {MAX_SERIES} projects")
        index_of: dict[int | None, int] = {at: place for place, at in enumerate(span.times)}
        lines: dict[str, list[float | None]] = {}
        for series in result:
            project, values = _series(series, self.source)
            if project in lines:
                doubts.twice = True
                continue
            line = lines[project] = [None] * len(index_of)
            for at, text in values:
                place = index_of.get(at)
                if place is None:
                    doubts.other_times = True
                else:
                    line[place] = doubts.value(text, name)
        return lines

    async def _newest(self) -> float | None:
        result = await self._query("query", {"query": NEWEST_QUERY}, "vector")
        if len(result) != 1:
            return None
        try:
            value = float(result[0]["value"][1])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise HistoryAway(f"{self.source} answered with no number") from error
        return value if 0 <= value <= _LATEST else None

    async def _query(self, call: str, words: Mapping[str, str], kind: str) -> list[Any]:
        """Return the result of a query. Raises HistoryAway."""
        session = self._session
        if session is None:
            raise HistoryAway(f"{self.source} is not asked any more")
        async with self._slots:
            try:
                async with session.post(
                    f"{self._url}/api/v1/{call}", data=words, allow_redirects=False
                ) as answer:
                    body = bytearray()
                    async for chunk in answer.content.iter_chunked(1 << 16):
                        body += chunk
                        if len(body) > MAX_ANSWER_BYTES:
                            raise HistoryAway(
                                f"{self.source} answers with more than {MAX_ANSWER_BYTES >> 20} MiB: choose less time"
                            )
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError) as error:
                raise HistoryAway(f"{self.source} does not answer ({type(error).__name__})") from error
        try:
            document = json.loads(body)
            if status == 200 and document["status"] == "success":
                data = document["data"]
                if data["resultType"] == kind and isinstance(data["result"], list):
                    return list(data["result"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise HistoryAway(f"{self.source} answered {status}, and nothing that can be read") from error
        raise HistoryAway(f"{self.source} refused the question with {status}: is it a Prometheus?")


class _Doubts:
    """The parts of an answer that were left out."""

    def __init__(self) -> None:
        self.impossible = False
        self.other_times = False
        self.others = False
        self.twice = False

    def value(self, text: object, name: str) -> float | None:
        """Return the number in a text; None for NaN, and for text or numbers that are impossible for this figure."""
        try:
            value = float(text) if isinstance(text, str) else math.inf
        except ValueError:
            value = math.inf
        if math.isnan(value):
            return None
        if not 0 <= value <= _GREATEST.get(name, _POSSIBLE) * (1 + 1e-9):
            self.impossible = True
            return None
        return value

    def sentences(self, source: str) -> list[str]:
        """Return a sentence for each kind of value that was left out."""
        return [
            f"{source} has {subject}: left out."
            for is_there, subject in (
                (self.impossible, "figures that cannot be"),
                (self.other_times, "figures of times that it was not asked for"),
                (self.others, "figures of projects that it was not asked for"),
                (self.twice, "several answers for one project"),
            )
            if is_there
        ]


def _filled(text: str, match: str, span: Span) -> str:
    lengths = {
        "{step}": span.step,
        "{window}": max(span.step, _SHORTEST_MEAN),
        "{lookback}": max(span.step, _SHORTEST_LOOKBACK),
    }
    for mark, seconds in lengths.items():
        text = text.replace(mark, str(seconds))
    return text.replace("{match}", match)


def _matcher(projects: frozenset[str] | None) -> str:
    """Return the label matcher for these projects; empty if the request is for all."""
    if projects is None or len(projects) > MAX_NAMED:
        return ""
    names = sorted(name for name in projects if _PROJECT.fullmatch(name))
    return '{project=~"' + "|".join(name.replace(".", "[.]") for name in names) + '"}'


def _series(series: Any, source: str) -> tuple[str, list[tuple[int | None, object]]]:
    """Return the project of a series, and its times and values. A time that is no whole second becomes None."""
    try:
        project = str(series["metric"].get("project", ""))
        pairs = [(float(at), value) for at, value in series["values"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise HistoryAway(f"{source} answered with no series") from error
    return project, [(int(at) if at.is_integer() else None, value) for at, value in pairs]


def _of_projects(
    read: Mapping[str, Mapping[str, Values]], span: Span, projects: frozenset[str] | None, doubts: _Doubts
) -> dict[str, ProjectLines]:
    """Return the lines of the requested projects. Lines without a project, or with another one, are dropped."""
    names = {name for lines in read.values() for name in lines}
    chosen = {
        name
        for name in names
        if (_PROJECT.fullmatch(name) or name == OTHERS) and (projects is None or name in projects)
    }
    doubts.others = chosen != names
    nothing: Values = [None] * len(span.times)
    return {
        name: ProjectLines(**{line: read[line].get(name, nothing) for line in PROJECT_LINES})
        for name in sorted(chosen)
    }


def _cluster(read: Mapping[str, Values | None], span: Span) -> ClusterLines:
    nothing: Values = [None] * len(span.times)
    return ClusterLines(**{name: values or nothing for name, values in read.items()})


def _staleness(source: str, as_of: float | None, now: float) -> list[str]:
    if as_of is None:
        subject = "has no figures of muster's operator of the last minutes: nothing here is current"
        return [
            f"{source} {subject}. Is the operator scraped, and are the rules of muster monitoring loaded?"
        ]
    if as_of > now + MAX_CLOCK_SECONDS:
        return [f"{source} has figures of a time that has not come yet: nothing here is current."]
    if now - as_of > CURRENT_SECONDS:
        minutes = int((now - as_of) // 60)
        return [f"The newest figures of {source} are {minutes} minutes old: nothing here is current."]
    return []
