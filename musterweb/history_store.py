"""The history that `muster web` writes itself: one SQLite file of bounded size, downsampled as it is written.

Each sample is added to one slot in each tier: the slot of its minute, of its ten minutes, and so on. A slot has sums
and counts, so nothing must be condensed later. It is dropped after the retention time of its tier. If the file still
reaches its maximum size, the oldest tenth is dropped.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from musterweb.errors import HistoryAway
from musterweb.history_model import (
    CURRENT_SECONDS,
    OTHERS,
    ClusterLines,
    ProjectLines,
    Record,
    Span,
)
from musterweb.usage_store import SCHEMA as USAGE_SCHEMA
from musterweb.usage_store import UsageSample, add_usage

T = TypeVar("T")

MAX_PROJECTS: Final = 1000
"""Maximum number of projects of a sample with their own rows; the others count together."""
MAX_BYTES: Final = 900 << 20
PAGE_BYTES: Final = 4096
_FORMAT: Final = 1
_WHOLE_CLUSTER: Final = ""


class Tier(NamedTuple):
    """The length of the slots, and the time for which the store keeps them, in seconds."""

    slot_seconds: int
    retention_seconds: int


DAY_SECONDS: Final = 86400
TIERS: Final = (
    Tier(60, 2 * DAY_SECONDS),
    Tier(600, 14 * DAY_SECONDS),
    Tier(3600, 92 * DAY_SECONDS),
    Tier(6 * 3600, 400 * DAY_SECONDS),
)
SLOTS: Final = sum(tier.retention_seconds // tier.slot_seconds + 1 for tier in TIERS)
MAX_ROWS: Final = SLOTS * (MAX_PROJECTS + 2)
"""Maximum number of rows of all slots. Each slot has two rows more than projects: `OTHERS` and the cluster."""

_SCHEMA: Final = """
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE points (
    tier INTEGER NOT NULL, name INTEGER NOT NULL, at INTEGER NOT NULL,
    samples INTEGER NOT NULL, gpu_milli INTEGER NOT NULL, quota_milli INTEGER, pending_milli INTEGER NOT NULL,
    idle_milli INTEGER, used_permille INTEGER, used_samples INTEGER NOT NULL,
    wait_seconds INTEGER NOT NULL, started INTEGER NOT NULL, oldest_wait INTEGER NOT NULL,
    PRIMARY KEY (tier, name, at)
) WITHOUT ROWID;
"""
_ADD: Final = """
INSERT INTO points VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    samples = samples + 1, gpu_milli = gpu_milli + excluded.gpu_milli, quota_milli = excluded.quota_milli,
    pending_milli = pending_milli + excluded.pending_milli,
    idle_milli = coalesce(idle_milli + excluded.idle_milli, idle_milli, excluded.idle_milli),
    used_permille = coalesce(used_permille + excluded.used_permille, used_permille, excluded.used_permille),
    used_samples = used_samples + excluded.used_samples, wait_seconds = wait_seconds + excluded.wait_seconds,
    started = started + excluded.started, oldest_wait = max(oldest_wait, excluded.oldest_wait)
"""
_READ: Final = """
SELECT (at - :start) / :step, sum(gpu_milli) * 1.0 / sum(samples), max(quota_milli),
    sum(pending_milli) * 1.0 / sum(samples), sum(idle_milli) * 1.0 / nullif(sum(used_samples), 0),
    sum(used_permille) * 1.0 / nullif(sum(used_samples), 0), sum(wait_seconds), sum(started), max(oldest_wait)
FROM points WHERE tier = :tier AND name = :name AND at >= :start AND at < :end + :step GROUP BY 1
"""

_FORGET: Final = """
DELETE FROM names WHERE NOT EXISTS (SELECT 1 FROM points WHERE tier IN (0, 1, 2, 3) AND name = names.id)
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one project at one moment.

    In the sample of the cluster, `quota_milli` is the number of all GPUs, in thousandths.

    `wait_seconds` and `started` are sums since the previous sample. `idle_milli` and `used_permille` (utilization in
    thousandths) are both None if no agent measured them.
    """

    gpu_milli: int
    quota_milli: int | None
    pending_milli: int
    idle_milli: int | None
    used_permille: int | None
    wait_seconds: int = 0
    started: int = 0
    oldest_wait: int = 0


class Store:
    """The file of a history, used by one thread of its own. `clock` returns seconds since the epoch."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, max_bytes: int = MAX_BYTES
    ) -> None:
        self._path = path
        self._clock = clock
        self._max_pages = max_bytes // PAGE_BYTES
        self._thread = ThreadPoolExecutor(1, "muster-web-history")
        self._connection: sqlite3.Connection | None = None
        self.source = "the history of muster web"
        self.problem = ""
        """Why the recorder cannot write samples now. Empty if it can."""

    async def start(self) -> None:
        """Open the file, or make it. Raises HistoryAway."""
        await self._run(self._open)

    async def close(self) -> None:
        """Close the file."""
        connection = self._connection
        if connection is not None:
            await self._run(connection.close)
        self._thread.shutdown()

    async def add(
        self, cluster: Sample, projects: dict[str, Sample], usage: UsageSample | None = None
    ) -> None:
        """Write the present figures, and delete old ones. Raises HistoryAway."""
        await self._run(lambda: self._add(cluster, projects, usage or UsageSample()))

    async def read(self, span: Span, projects: frozenset[str] | None) -> Record:
        """Return the figures of these projects. None means all projects and the cluster. Raises HistoryAway."""
        return await self._run(lambda: self._read(span, projects))

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise HistoryAway(f"the history in {self._path.name} cannot be used: {error}") from error

    def check(self) -> None:
        """Raise HistoryAway if the file is not a history of muster, or cannot be written."""
        try:
            self._connect().close()
        except sqlite3.Error as error:
            raise HistoryAway(f"the history {self._path} cannot be used: {error}") from error

    def _open(self) -> None:
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            self._path.touch(0o600)
        except OSError as error:
            raise HistoryAway(f"the history {self._path} cannot be written: {error.strerror}") from error
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise HistoryAway(f"{self._path} was written by another version: name another file")
        if version == 0:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")
        connection.executescript(f"BEGIN; {USAGE_SCHEMA} COMMIT;")

    @property
    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise HistoryAway(f"the history in {self._path.name} is not open")
        return self._connection

    def _add(self, cluster: Sample, projects: dict[str, Sample], usage: UsageSample) -> None:
        now = int(self._clock())
        samples = {_WHOLE_CLUSTER: cluster, **bounded(projects)}
        try:
            self._write(samples, usage, now)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            self._drop_oldest()
            self._write(samples, usage, now)

    def _write(self, samples: dict[str, Sample], usage: UsageSample, now: int) -> None:
        connection = self._open_connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._expire(now)
            connection.executemany(
                "INSERT OR IGNORE INTO names (name) VALUES (?)", [(name,) for name in samples]
            )
            ids = dict(connection.execute("SELECT name, id FROM names"))
            connection.executemany(
                _ADD,
                [
                    (number, ids[name], now // tier.slot_seconds * tier.slot_seconds, *_columns(sample))
                    for number, tier in enumerate(TIERS)
                    for name, sample in samples.items()
                ],
            )
            add_usage(connection, usage, now)
        except BaseException:
            if connection.in_transaction:  # if the file is full, SQLite has ended the transaction
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _expire(self, now: int) -> None:
        """Drop the slots after the retention time of their tier, and the names without slots."""
        connection = self._open_connection
        for number, tier in enumerate(TIERS):
            connection.execute(
                "DELETE FROM points WHERE tier = ? AND name IN (SELECT id FROM names) AND at < ?",
                (number, now - tier.retention_seconds),
            )
        connection.execute(_FORGET)

    def _drop_oldest(self) -> None:
        """Drop the oldest tenth of each tier."""
        connection = self._open_connection
        for number in range(len(TIERS)):
            first, last = connection.execute(
                "SELECT min(at), max(at) FROM points WHERE tier = ?", (number,)
            ).fetchone()
            if first is not None:
                until = first + max(TIERS[number].slot_seconds, (last - first) // 10)
                connection.execute("DELETE FROM points WHERE tier = ? AND at < ?", (number, until))

    def _read(self, span: Span, projects: frozenset[str] | None) -> Record:
        connection = self._open_connection
        known = dict(connection.execute("SELECT name, id FROM names"))
        number = _tier_of(span)
        if projects is None:
            chosen = sorted(set(known) - {_WHOLE_CLUSTER})
        else:
            chosen = sorted(set(known) & projects - {_WHOLE_CLUSTER, OTHERS})
        lines = {name: _project_lines(self._rows(span, number, known[name]), span) for name in chosen}
        cluster = None
        if projects is None and _WHOLE_CLUSTER in known:
            cluster = _cluster_lines(self._rows(span, number, known[_WHOLE_CLUSTER]), span)
        (as_of,) = connection.execute(
            "SELECT max(at) FROM points WHERE tier = 0 AND name = ?", (known.get(_WHOLE_CLUSTER, -1),)
        ).fetchone()
        return Record(
            span,
            {
                name: line
                for name, line in lines.items()
                if any(value is not None for value in line.allocated)
            },
            cluster,
            as_of,
            tuple(self._problems(as_of)),
        )

    def _rows(self, span: Span, tier: int, name: int) -> list[tuple[int, Sequence[float | None]]]:
        words = {"start": span.start, "end": span.end, "step": span.step, "tier": tier, "name": name}
        return [(row[0], row[1:]) for row in self._open_connection.execute(_READ, words)]

    def _problems(self, as_of: int | None) -> Iterable[str]:
        if self.problem:
            yield f"Nothing is recorded at present: {self.problem}"
        elif as_of is None:
            yield "Nothing was recorded yet: come back in some minutes."
        if as_of is not None and self._clock() - as_of > CURRENT_SECONDS:
            minutes = int((self._clock() - as_of) // 60)
            yield f"The newest figures of {self.source} are {minutes} minutes old: nothing here is current."


def bounded(projects: dict[str, Sample]) -> dict[str, Sample]:
    """Return the samples of the `MAX_PROJECTS` projects with the most allocated and pending GPUs.

    One more sample sums the other projects.
    """
    if len(projects) <= MAX_PROJECTS:
        return projects
    most = sorted(projects, key=lambda name: (-projects[name].gpu_milli - projects[name].pending_milli, name))
    others = [projects[name] for name in most[MAX_PROJECTS:]]
    together = Sample(
        gpu_milli=sum(sample.gpu_milli for sample in others),
        quota_milli=sum(sample.quota_milli or 0 for sample in others),
        pending_milli=sum(sample.pending_milli for sample in others),
        idle_milli=None,
        used_permille=None,
        wait_seconds=sum(sample.wait_seconds for sample in others),
        started=sum(sample.started for sample in others),
        oldest_wait=max(sample.oldest_wait for sample in others),
    )
    return {name: projects[name] for name in most[:MAX_PROJECTS]} | {OTHERS: together}


def _columns(sample: Sample) -> tuple[int | None, ...]:
    values = astuple(sample)
    return (*values[:5], int(sample.used_permille is not None), *values[5:])


def _tier_of(span: Span) -> int:
    """Return the coarsest tier with enough points for the span.

    If there is none, return the finest tier that keeps the whole span.
    """
    length = span.end - span.start
    reaching = [number for number, tier in enumerate(TIERS) if tier.retention_seconds >= length]
    fine = [number for number in reaching if TIERS[number].slot_seconds <= span.step]
    return max(fine) if fine else min(reaching, default=len(TIERS) - 1)


def _project_lines(rows: Iterable[tuple[int, Sequence[float | None]]], span: Span) -> ProjectLines:
    lines: list[list[float | None]] = [[None] * len(span.times) for _ in range(8)]
    for place, values in rows:
        if 0 <= place < len(span.times):
            for line, value, divisor in zip(lines, values, _DIVISORS, strict=True):
                line[place] = None if value is None else value / divisor
    allocated, quota, pending, idle, utilization, waits, started, oldest = lines
    return ProjectLines(allocated, quota, pending, idle, utilization, waits, started, oldest)


_DIVISORS: Final = (1000, 1000, 1000, 1000, 1000, 1, 1, 1)


def _cluster_lines(rows: Iterable[tuple[int, Sequence[float | None]]], span: Span) -> ClusterLines:
    lines = _project_lines(rows, span)
    return ClusterLines(lines.quota, lines.allocated, lines.utilization)
