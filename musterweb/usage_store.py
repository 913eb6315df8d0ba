"""The GPU time of each month by project, user and model, in tables of the history's file.

Each sample adds the amounts of GPUs times the seconds since the previous sample. A longer gap than `MAX_GAP_SECONDS`
counts as not recorded. All sums are integers: thousandths of a GPU times seconds.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from musterweb.errors import HistoryAway
from musterweb.history_model import OTHERS

MAX_GAP_SECONDS: Final = 180
MAX_MONTH_ROWS: Final = 50_000
"""Maximum number of rows of a month; further ones count together as `OTHERS`."""
RETENTION_SECONDS: Final = 800 * 86400

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS usage (
    month TEXT NOT NULL, project TEXT NOT NULL, user TEXT NOT NULL, model TEXT NOT NULL,
    gpu_milli_seconds INTEGER NOT NULL, measured_milli_seconds INTEGER NOT NULL,
    used_milli_percent_seconds INTEGER NOT NULL, idle_milli_seconds INTEGER NOT NULL,
    PRIMARY KEY (month, project, user, model)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage_borrowed (
    month TEXT NOT NULL, project TEXT NOT NULL, borrowed_milli_seconds INTEGER NOT NULL, PRIMARY KEY (month, project)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage_recorded (month TEXT PRIMARY KEY, seconds INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage_newest (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);
"""
_ADD: Final = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    gpu_milli_seconds = gpu_milli_seconds + excluded.gpu_milli_seconds,
    measured_milli_seconds = measured_milli_seconds + excluded.measured_milli_seconds,
    used_milli_percent_seconds = used_milli_percent_seconds + excluded.used_milli_percent_seconds,
    idle_milli_seconds = idle_milli_seconds + excluded.idle_milli_seconds
"""
_ADD_BORROWED: Final = """
INSERT INTO usage_borrowed VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET borrowed_milli_seconds = borrowed_milli_seconds + excluded.borrowed_milli_seconds
"""
_ADD_RECORDED: Final = """
INSERT INTO usage_recorded VALUES (?, ?) ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds
"""


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """The project, user and GPU model of allocated GPUs. An empty string means unknown."""

    project: str
    user: str
    model: str


@dataclass(frozen=True, slots=True)
class Held:
    """Allocated GPUs at one moment, in thousandths.

    `measured_milli` have a measured utilization, and `idle_milli` of these are idle.

    `used_milli_percent` sums, over the measured GPUs, the allocated thousandths times the utilization in percent.
    """

    gpu_milli: int
    measured_milli: int = 0
    used_milli_percent: int = 0
    idle_milli: int = 0

    def __add__(self, other: "Held") -> "Held":
        return Held(
            self.gpu_milli + other.gpu_milli,
            self.measured_milli + other.measured_milli,
            self.used_milli_percent + other.used_milli_percent,
            self.idle_milli + other.idle_milli,
        )


@dataclass(frozen=True, slots=True)
class UsageSample:
    """The holders of GPUs at one moment, and the GPUs of each project above its quota."""

    held: Mapping[Holder, Held] = field(default_factory=dict)
    borrowed_milli: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The GPU time of one holder in one month."""

    month: str
    holder: Holder
    gpu_milli_seconds: int
    measured_milli_seconds: int
    used_milli_percent_seconds: int
    idle_milli_seconds: int


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """All rows of a file; `borrowed` is by month and project, `recorded_seconds` by month."""

    rows: tuple[UsageRow, ...]
    borrowed: Mapping[tuple[str, str], int]
    recorded_seconds: Mapping[str, int]


def add_usage(connection: sqlite3.Connection, sample: UsageSample, now: int) -> None:
    """Add a sample to its month, in the caller's transaction, and drop months after their retention time.

    The time of the previous sample is in the file. So if two processes write to the file, each period counts once.
    """
    oldest = _month(now - RETENTION_SECONDS)
    for table in ("usage", "usage_borrowed", "usage_recorded"):
        connection.execute(f"DELETE FROM {table} WHERE month < ?", (oldest,))  # noqa: S608 - names of our own
    (before,) = connection.execute("SELECT max(at) FROM usage_newest").fetchone()
    connection.execute("REPLACE INTO usage_newest VALUES (0, ?)", (now,))
    seconds = 0 if before is None else now - before
    if not 0 < seconds <= MAX_GAP_SECONDS:
        return
    month = _month(now)
    held = _bounded(connection, sample.held, month)
    connection.executemany(
        _ADD,
        [
            (
                month, holder.project, holder.user, holder.model,
                amount.gpu_milli * seconds, amount.measured_milli * seconds,
                amount.used_milli_percent * seconds, amount.idle_milli * seconds,
            )
            for holder, amount in held.items()
        ],
    )  # fmt: skip
    connection.executemany(
        _ADD_BORROWED,
        [(month, project, milli * seconds) for project, milli in sample.borrowed_milli.items()],
    )
    connection.execute(_ADD_RECORDED, (month, seconds))


def read_usage(path: Path) -> UsageRecord:
    """Return the rows of a history's file, which may be in use. Raises HistoryAway."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return _read(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise HistoryAway(
            f"{path}: has no GPU time ({error}); give the file of muster web --history"
        ) from error


def _read(connection: sqlite3.Connection) -> UsageRecord:
    rows = connection.execute("SELECT * FROM usage ORDER BY month, project, user, model")
    borrowed = connection.execute("SELECT month, project, borrowed_milli_seconds FROM usage_borrowed")
    return UsageRecord(
        tuple(UsageRow(row[0], Holder(*row[1:4]), *row[4:]) for row in rows),
        {(month, project): amount for month, project, amount in borrowed},
        dict(connection.execute("SELECT month, seconds FROM usage_recorded")),
    )


def _bounded(
    connection: sqlite3.Connection, held: Mapping[Holder, Held], month: str
) -> Mapping[Holder, Held]:
    """Return the amounts by holder. New holders beyond the maximum number of rows are added up as one."""
    known = {
        Holder(*row)
        for row in connection.execute("SELECT project, user, model FROM usage WHERE month = ?", (month,))
    }
    free = MAX_MONTH_ROWS - len(known)
    new = [holder for holder in sorted(held) if holder not in known]
    if len(new) <= free:
        return held
    dropped = frozenset(new[max(free, 0) :])
    return {holder: amount for holder, amount in held.items() if holder not in dropped} | {
        Holder(OTHERS, OTHERS, OTHERS): _sum(held[holder] for holder in dropped)
    }


def _sum(amounts: Iterable[Held]) -> Held:
    total = Held(0)
    for amount in amounts:
        total += amount
    return total


def _month(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")
