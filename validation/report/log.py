"""events.jsonl, the log of a run: events and actions, one line each, appended and synced as they happen.

The record is made from the log alone, so a killed run has a record too, up to the log's last line.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from validation.errors import ReportError
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import Event
from validation.report import files
from validation.report.record import ClusterRecord, Command, Report

NAME: Final = "events.jsonl"
MAX_LINE_BYTES: Final = 32 << 20
MAX_INTEGER: Final = (1 << 53) - 1
"""The largest integer that RFC 8785 represents exactly."""
_MANY_DIGITS: Final = re.compile(rb"\d{16}")
SYNC_SECONDS = 0.1
"""Maximum time until an event is synced to the disk.

The entries at the beginning and the end of a check are synced immediately.
"""


class _Entry(msgspec.Struct, rename="camel", forbid_unknown_fields=True, tag_field="entry"):
    """A line of the log."""


class Opened(_Entry, tag="opened"):
    """The record before the run: all requested checks. `selected` are the checks that will run."""

    report: Report
    selected: list[str]


class Observed(_Entry, tag="observed"):
    """An event, with the version of its object and the API server's own time of the object's last change."""

    event: Event
    resource_version: str = ""
    server_time: str = ""


class Described(_Entry, tag="described"):
    """The target and its cluster, as far as they are known at this point."""

    target: dict[str, str]
    cluster: ClusterRecord


class ScenarioBegan(_Entry, tag="scenario"):
    """The first step of the scenario begins."""

    scenario: str
    t_ms: int


class CheckBegan(_Entry, tag="began"):
    """The check begins."""

    check: str
    t_ms: int


class CheckEnded(_Entry, tag="ended"):
    """The check ended, or was not run; then it has no times. The verdict follows from this entry and the events."""

    check: str
    circumstances: Circumstances
    started_ms: int | None = None
    ended_ms: int | None = None
    commands: list[Command] = []
    window: Window | None = None


class Closed(_Entry, tag="closed"):
    """The end of the run. A killed run has no such entry. `ended` is the time of the wall clock.

    `files` are the digests of the files beside the log and the record: output of the operator and of the installation.
    """

    ended: str
    duration_ms: int
    timings: dict[str, str]
    interrupted: str = ""
    files: dict[str, str] = {}


Entry = Opened | Observed | Described | ScenarioBegan | CheckBegan | CheckEnded | Closed
_BOUNDS = (ScenarioBegan, CheckBegan, CheckEnded, Closed)
_DECODER = msgspec.json.Decoder(Entry)


@dataclass(frozen=True, slots=True)
class Log:
    """A log that was read: its entries, the first of which is `opened`, and the digest of its file."""

    opened: Opened
    entries: list[Entry]
    sha256: str
    is_cut: bool = False
    """Whether the last line is incomplete."""

    @property
    def events(self) -> list[Event]:
        """Return the observed events, in order."""
        return [entry.event for entry in self.entries if isinstance(entry, Observed)]


class RunLog:
    """Appends to the log of a run. Use `open_log`."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle = handle
        self._synced = time.monotonic()

    def append(self, entry: Entry) -> None:
        """Write the entry. From then on, it survives the end of this process. It survives a crash of the machine after
        the next sync.

        Raises ReportError.
        """
        line = encode(entry)
        try:
            written = os.write(self._handle, line)
            while written < len(line):
                written += os.write(self._handle, line[written:])
            if isinstance(entry, _BOUNDS) or time.monotonic() - self._synced >= SYNC_SECONDS:
                os.fsync(self._handle)
                self._synced = time.monotonic()
        except OSError as error:
            raise ReportError(f"{self._path}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Sync the entries, and close the file."""
        os.fsync(self._handle)
        os.close(self._handle)


def open_log(directory: Path, opened: Opened) -> RunLog:
    """Begin the log of a run. It replaces an earlier log as soon as its first entry is written. Raises ReportError."""
    path = directory / NAME
    temporary = path.with_name(f".{NAME}.{os.getpid()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        log = RunLog(path, handle)
        log.append(opened)
        os.fsync(handle)
        temporary.replace(path)
        _sync_directory(directory)
    except OSError as error:
        raise ReportError(f"{directory}: the report cannot be written: {error.strerror}") from error
    return log


def read_log(directory: Path) -> Log:
    """Return the log of a report directory. An incomplete last line is ignored. Raises ReportError."""
    path = directory / NAME
    entries: list[Entry] = []
    digest, line = hashlib.sha256(), b""
    try:
        for line in _lines(path):
            digest.update(line)
            if line.endswith(b"\n"):
                entries.append(_DECODER.decode(line))
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: is not a log of a run: {error}") from error
    if not entries or not isinstance(entries[0], Opened):
        raise ReportError(f"{path}: is not a log of a run: it does not begin with the request")
    return Log(entries[0], entries, digest.hexdigest(), is_cut=not line.endswith(b"\n"))


def other_forms(directory: Path) -> list[str]:
    """Return a line for the first entry that is not in canonical form, because readers could understand it differently.

    The canonical form has all keys, sorted, each once, no spaces, and integers of at most 53 bits.
    """
    for number, line in enumerate(_lines(directory / NAME), 1):
        if line.endswith(b"\n") and (encode(_DECODER.decode(line)) != line or _has_large_number(line)):
            return [f"{NAME}: line {number} is not in canonical form"]
    return []


def encode(entry: Entry) -> bytes:
    """Return the line of the entry."""
    return msgspec.json.encode(entry, order="sorted") + b"\n"


def _has_large_number(line: bytes) -> bool:
    """Return whether a number has more than 53 bits. Digits in a string do not count."""
    if _MANY_DIGITS.search(line) is None:
        return False
    numbers: list[int] = []
    json.loads(line, parse_int=lambda digits: numbers.append(int(digits[:20])))
    return any(abs(number) > MAX_INTEGER for number in numbers)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a log, each with its line end; the last line may be incomplete. Raises ReportError."""
    with files.opened(path) as file:
        try:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise ReportError(f"{path}: has a line of more than {MAX_LINE_BYTES} bytes")
                yield line
        except OSError as error:
            raise ReportError(f"{path}: cannot be read: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
