"""The journal of a site. Lines are only appended, so a crash damages at most the last lines.

Each line is a JSON object with `event`: `run` (with its options), `started` and `ended` (a stage), `removed` (a host),
`finished`. It has no secrets and no output of tasks. The logs are in the same directory.
"""

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from deployment.digest import sha256_of
from deployment.errors import JournalError, Locked

FILE: Final = "journal.jsonl"
LOCK: Final = "lock"
ANSIBLE_LOCK: Final = "ansible.lock"
LOGS: Final = "logs"
RUNS: Final = "runs"
TORN: Final = "journal.torn"

VERIFIED, FAILED, INTERRUPTED, REMOVED = "verified", "failed", "interrupted", "removed"

_SPACE_BYTES: Final = 1 << 20
"""Free space needed before a run begins: its logs and journal are smaller."""

_REMAINS_SECONDS: Final = 7.0
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class StageRecord:
    """The last result of a stage. `inputs` has digests of its inputs, `versions` the site file's releases at that
    time.
    """

    stage: str
    result: str
    at: str = ""
    action: str = ""
    digest: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """Hosts on which the stage is not done with these inputs."""


def now() -> str:
    """Return the time as the journal writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


class Journal:
    """The journal of one site. Reading needs no lock. Writing needs the lock of `exclusive`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.torn = ""
        self._readable_bytes = 0
        self.entries = self._read()

    @property
    def path(self) -> Path:
        """The journal file."""
        return self.directory / FILE

    @property
    def ansible_lock(self) -> Path:
        """The file that stays locked while Ansible works on the site, even if muster was killed."""
        return self.directory / ANSIBLE_LOCK

    def log_path(self, run: str, stage: str) -> Path:
        """Return the path of a stage's log."""
        return self.directory / LOGS / f"{run}-{stage}.log"

    def run_directory(self, run: str) -> Path:
        """Make and return the directory for files of a run that are kept, such as a snapshot of etcd."""
        path = self.directory / RUNS / run
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def unfinished(self) -> dict[str, Any] | None:
        """Return the entry of the last run that changes the site, unless it finished."""
        last: dict[str, Any] | None = None
        for entry in self.entries:
            if entry["event"] == "run" and entry.get("action") != "verify":
                last = entry
            elif entry["event"] == "finished" and last and entry.get("run") == last.get("run"):
                last = None
        return last

    def removed_hosts(self) -> dict[str, str]:
        """Return the time of removal of each host that `muster node remove` has removed and no later run has added."""
        removed: dict[str, str] = {}
        for entry in self.entries:
            if entry["event"] == "removed":
                removed[entry["host"]] = entry["at"]
            elif entry["event"] == "run" and entry["action"] == "install":
                removed.pop(entry.get("options", {}).get("limit", ""), None)
        return removed

    def intact_files(self, stage: str) -> dict[str, str]:
        """Return the files and digests that `stage` left in an unfinished upgrade, if all are unchanged."""
        files: dict[str, str] = {}
        upgrades: set[str] = set()
        for entry in self.entries:
            if entry["event"] == "run" and entry.get("action") == "upgrade":
                upgrades.add(entry["run"])
            elif entry["event"] == "finished" and entry.get("run") in upgrades:
                files = {}
            elif entry["event"] == "ended" and entry["stage"] == stage and entry["result"] == VERIFIED:
                files = entry.get("files", {})
        whole = all(
            (self.directory / name).is_file() and sha256_of(self.directory / name) == digest
            for name, digest in files.items()
        )
        return files if whole else {}

    def last_records(self) -> dict[str, StageRecord]:
        """Return the latest result of each stage. A stage that started and did not end counts as interrupted.

        A run that changes nothing (`verify`) does not count: it proves nothing about later inputs.
        """
        stages: dict[str, StageRecord] = {}
        for entry in self.entries:
            if entry.get("action") == "verify":
                continue
            if entry["event"] == "started":
                stages[entry["stage"]] = StageRecord(
                    entry["stage"], INTERRUPTED, entry["at"], entry["action"], entry.get("digest", ""),
                    entry.get("inputs", {}), entry.get("log", ""), left=entry.get("left", []),
                )  # fmt: skip
            elif entry["event"] == "ended":
                stages[entry["stage"]] = StageRecord(
                    entry["stage"], entry["result"], entry["at"], entry.get("action", ""), entry.get("digest", ""),
                    entry.get("inputs", {}), entry.get("log", ""), entry.get("versions", {}),
                    entry.get("left", []),
                )  # fmt: skip
        return stages

    def write(self, **entry: Any) -> None:
        """Add a line and wait until the disk has it. Raises JournalError."""
        entry = {"at": now(), **entry}
        line = memoryview(f"{json.dumps(entry, sort_keys=True)}\n".encode())
        try:
            # No buffer: after a failure, `close` would write the rest of the buffer behind the line that was
            # removed.
            with self.path.open("ab", buffering=0) as file:
                before = file.tell()
                try:
                    while line:
                        line = line[file.write(line) :]
                    os.fsync(file.fileno())
                except OSError:
                    with contextlib.suppress(OSError):
                        os.truncate(self.path, before)
                    raise
        except OSError as error:
            raise self._error(error) from error
        self.entries.append(entry)

    @contextlib.contextmanager
    def exclusive(self, action: str) -> Iterator[None]:
        """Lock the site for one run. Raises Locked, or JournalError if the directory cannot be used."""
        try:
            (self.directory / LOGS).mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.directory / LOCK).open("a+")
        except OSError as error:
            raise self._error(error) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                holder = re.sub(r"[^\x20-\x7e]", "", lock.readline(200)) or "another run"
                raise Locked(f"{holder} is running at this site: wait for its end, or stop it") from error
            try:
                self._wait_for_remains()
            except OSError as error:
                raise self._error(error) from error
            self._check_space()
            lock.truncate(0)
            lock.write(f"`muster {action}` (process {os.getpid()}, since {now()})")
            lock.flush()
            self.entries = self._read()
            self._move_torn_end()
            yield
            lock.truncate(0)

    def _wait_for_remains(self) -> None:
        """Wait for the subreaper of a run that was killed to end its Ansible. Raises Locked."""
        deadline = time.monotonic() + _REMAINS_SECONDS
        with self.ansible_lock.open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise Locked(
                            "the Ansible of a run that was killed still works at this site: wait for its end, or look "
                            f"for it with `fuser {self.ansible_lock}`"
                        ) from error
                    time.sleep(_POLL_SECONDS)
                else:
                    return

    def _check_space(self) -> None:
        stat = os.statvfs(self.directory)
        free = stat.f_bavail * stat.f_frsize
        if free < _SPACE_BYTES:
            raise JournalError(
                f"{self.directory}: {free // 1024} KiB are free and {_SPACE_BYTES // 1024} KiB are needed for "
                "journal and logs. Free some, or name another directory with --state-dir; nothing was done"
            )

    def _read(self) -> list[dict[str, Any]]:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error(error) from error
        entries: list[dict[str, Any]] = []
        self.torn, self._readable_bytes = "", 0
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            entry = _entry(line)
            if entry is None:
                self.torn = (
                    f"{self.path}:{number}: the rest of the journal cannot be read; those stages run again"
                )
                break
            entries.append(entry)
            self._readable_bytes += len(line) + 1
        return entries

    def _move_torn_end(self) -> None:
        """Move unreadable lines to a file beside the journal, so that new lines follow complete ones."""
        if not self.torn:
            return
        lines = self.path.read_bytes().split(b"\n")
        good = b"".join(line + b"\n" for line in lines if line)[: self._readable_bytes]
        try:
            (self.directory / TORN).write_bytes(b"\n".join(lines))
            temporary = self.path.with_suffix(".new")
            temporary.write_bytes(good)
            temporary.replace(self.path)
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> JournalError:
        return JournalError(
            f"{self.directory}: the journal cannot be used ({error.strerror}): "
            "make it writable and free some space, or give another directory with --state-dir"
        )


class _Options(msgspec.Struct):
    first: str | None = None
    last: str | None = None
    limit: str = ""
    extra: list[str] = []
    bundle: str | None = None
    bundle_sha256: str = ""
    bundle_key: str | None = None
    accept_irreversible: bool = False
    accept_runtime_purge: bool = False


class _Line(msgspec.Struct):
    """The types of the fields of a line that are read. A line may have more."""

    event: str
    at: str = ""
    run: str = ""
    action: str = ""
    stage: str = ""
    host: str = ""
    result: str = ""
    digest: str = ""
    log: str = ""
    inputs: dict[str, str] = {}
    versions: dict[str, str] = {}
    files: dict[str, str] = {}
    left: list[str] = []
    options: _Options = msgspec.field(default_factory=_Options)


_NEEDED: Final = {
    "run": ("run", "action"),
    "started": ("stage", "at", "action"),
    "ended": ("stage", "result"),
    "finished": ("run",),
    "removed": ("host", "at"),
}
"""By event, the fields that a line must have. Lines of other events, of a newer muster, are skipped."""


def _entry(line: bytes) -> dict[str, Any] | None:
    """Return the entry in a line; None for a line that is not a valid entry of a journal."""
    try:
        shape = msgspec.json.decode(line, type=_Line)
        entry: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if all(getattr(shape, name) for name in _NEEDED.get(shape.event, ())) else None
