"""The state directory of a lab: its creation, the record in it, and the status of the recorded processes."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from musterlab import supervisor
from musterlab.errors import LabNotFound, StateError

RECORD = "lab.json"

LabState = Literal["running", "starting", "degraded", "dead"]


@dataclass(frozen=True)
class Record:
    """The description of a lab, written before any process of it starts. `starter` is the process that makes it."""

    name: str
    nodes: tuple[tuple[str, int], ...]
    port: int
    programs: str
    kubectl_directory: str
    starter_pid: int
    starter_start_ticks: int
    ready: bool = False
    real_nodes: int = 0
    gpus: str = ""
    gpu_programs: Mapping[str, str] = field(default_factory=dict)
    """The program for each role that the GPUs of the lab need."""


@dataclass(frozen=True)
class ProcessStatus:
    """One process of a lab. `rss_bytes` is 0 if it does not run.

    `exit_status` is negative for a signal. It is None while the process runs, and until the supervisor has recorded
    its end.
    """

    name: str
    state: Literal["running", "waiting", "exited"]
    pid: int
    exit_status: int | None
    rss_bytes: int
    log: Path


@dataclass(frozen=True)
class Status:
    """The running processes of a lab.

    running: all processes; starting: a starter is active; degraded: a process ended; dead: the supervisor has ended.
    """

    state: LabState
    detached: bool
    supervisor_pid: int
    processes: tuple[ProcessStatus, ...]

    @property
    def ended(self) -> tuple[ProcessStatus, ...]:
        """Processes that ended although the lab should run."""
        return tuple(process for process in self.processes if process.state == "exited")


def create(directory: Path, record: Record) -> bool:
    """Make the directory with the record in it atomically, with mode 0700. Return false if it exists already.

    Raises:
        StateError: it cannot be made.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as temporary:
            new_directory = Path(temporary) / "lab"
            new_directory.mkdir(mode=0o700)
            write_record(new_directory, record)
            if directory.is_dir():
                return False
            try:
                new_directory.rename(directory)
            except OSError:
                if directory.is_dir():
                    return False
                raise
    except OSError as error:
        raise StateError(
            f"the state directory {directory} cannot be made ({error.strerror}): give another with --state-dir"
        ) from error
    return True


def write_record(directory: Path, record: Record) -> None:
    """Replace the record as a whole."""
    temporary = directory / f"{RECORD}.new"
    temporary.write_text(json.dumps(asdict(record)))
    temporary.replace(directory / RECORD)


def read_record(directory: Path) -> Record:
    """Read the record.

    Raises:
        LabNotFound: there is no lab in the directory.
        StateError: the directory holds something else.
    """
    try:
        fields = json.loads((directory / RECORD).read_text())
        fields["nodes"] = tuple((profile, count) for profile, count in fields["nodes"])
        return Record(**fields)
    except FileNotFoundError as error:
        if directory.is_dir():
            raise StateError(f"{directory} is not the state of a lab: it has no {RECORD}") from error
        raise LabNotFound(
            f"there is no lab {directory.name!r} in {directory.parent}: start it with 'lab up'"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{directory / RECORD} cannot be read ({error}): remove {directory}") from error


def read_status(directory: Path, record: Record) -> Status:
    """Compare the supervisor's record with the running processes."""
    raw = _read_supervisor(directory)
    processes = tuple(_process(directory, name, entry) for name, entry in raw.get("processes", {}).items())
    owner = raw.get("supervisor", {})
    pid = int(owner.get("pid", 0))
    supervised = alive(owner)
    started_by = {"pid": record.starter_pid, "start_ticks": record.starter_start_ticks}
    state: LabState = "running"
    if not supervised:
        state = "starting" if not raw and alive(started_by) else "dead"
    elif any(process.state == "exited" for process in processes):
        state = "degraded"
    elif not record.ready:
        state = "starting"
    return Status(state, bool(raw.get("detached", False)), pid if supervised else 0, processes)


def process_entries(directory: Path) -> list[Mapping[str, int]]:
    """Return pid and start time of the supervisor and of each process that was started, even if it has ended."""
    raw = _read_supervisor(directory)
    entries = [raw.get("supervisor", {}), *raw.get("processes", {}).values()]
    return [entry for entry in entries if entry.get("pid")]


def alive(entry: Mapping[str, Any]) -> bool:
    """Return whether the recorded process still runs. A later process with the same PID does not count."""
    ticks = supervisor.start_ticks(int(entry.get("pid", 0)))
    return ticks is not None and ticks == entry.get("start_ticks")


def own_start_ticks() -> int:
    """Start time of this process, in clock ticks since boot."""
    return supervisor.start_ticks(os.getpid()) or 0


def _read_supervisor(directory: Path) -> dict[str, Any]:
    try:
        raw: dict[str, Any] = json.loads((directory / supervisor.STATUS).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return raw


def _process(directory: Path, name: str, entry: Mapping[str, Any]) -> ProcessStatus:
    state: Literal["running", "waiting", "exited"] = entry["state"]
    if state == "running" and not alive(entry):
        state = "exited"
    return ProcessStatus(
        name=name,
        state=state,
        pid=int(entry.get("pid", 0)),
        exit_status=entry.get("exit_status"),
        rss_bytes=_rss_bytes(int(entry["pid"])) if state == "running" else 0,
        log=directory / supervisor.LOGS / f"{name}.log",
    )


def _rss_bytes(pid: int) -> int:
    """Resident memory of a process and all its descendants."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(_rss_bytes(int(child)) for child in children)
