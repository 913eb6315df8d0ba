"""The supervisor with other processes than Kubernetes': which processes die together, and the files and processes
that are left.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from musterlab import state, supervisor, teardown
from musterlab.supervisor_handle import SupervisorHandle

Eventually = Callable[[Callable[[], bool], str], None]
ProcessesOf = Callable[[Path], list[str]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "lab"
    (path / supervisor.LOGS).mkdir(parents=True)
    sleeper = ["/bin/sh", "-c", f"echo up; sleep 600; : {path}"]
    processes = [
        {"name": "first", "command": sleeper, "autostart": True},
        {"name": "late", "command": sleeper, "autostart": False},
        {"name": "faulty", "command": ["/bin/sh", "-c", "echo broken; exit 3"], "autostart": False},
    ]
    (path / supervisor.PROCESSES).write_text(json.dumps(processes))
    record = state.Record("lab", (), 1, "PATH", "/", os.getpid(), state.own_start_ticks(), ready=True)
    state.write_record(path, record)
    return path


def status(directory: Path) -> state.Status:
    return state.read_status(directory, state.read_record(directory))


def process(directory: Path, name: str) -> state.ProcessStatus:
    return next(each for each in status(directory).processes if each.name == name)


def started(directory: Path, eventually: Eventually) -> SupervisorHandle:
    handle = SupervisorHandle(directory)
    eventually(lambda: status(directory).state == "running", "the supervisor runs")
    log = directory / supervisor.LOGS / "first.log"
    eventually(lambda: log.read_text() == "up\n", "the first process is past pdeathsig_exec")
    return handle


def test_processes_start_at_once_or_when_told_to(directory: Path, eventually: Eventually) -> None:
    handle = started(directory, eventually)
    assert process(directory, "first").state == "running"
    assert process(directory, "late").state == "waiting"
    handle.start("late")
    eventually(lambda: process(directory, "late").state == "running", "the second process runs")
    teardown.stop(directory, handle)
    assert not directory.exists()


def test_a_cut_tie_stops_all_and_removes_the_directory(
    directory: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    handle = started(directory, eventually)
    handle.close()
    eventually(handle.reaped, "the supervisor ended")
    assert processes_of(directory) == []
    assert not directory.exists()


def test_a_detached_lab_outlives_the_tie_until_it_is_stopped(
    directory: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    handle = started(directory, eventually)
    handle.detach()
    eventually(lambda: status(directory).detached, "the supervisor is detached")
    assert status(directory).state == "running"
    teardown.stop(directory)
    assert handle.reaped()
    assert processes_of(directory) == []
    assert not directory.exists()


def test_a_killed_supervisor_takes_its_processes_along(
    directory: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    handle = started(directory, eventually)
    os.kill(status(directory).supervisor_pid, signal.SIGKILL)
    eventually(lambda: processes_of(directory) == [], "no process is left")
    assert status(directory).state == "dead"
    teardown.stop(directory, handle)
    assert not directory.exists()


def test_a_killed_starter_leaves_nothing(
    directory: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    code = (
        "import sys; from pathlib import Path; from musterlab.supervisor_handle import SupervisorHandle; "
        "handle = SupervisorHandle(Path(sys.argv[1])); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(directory)], stdin=subprocess.PIPE) as starter:
        eventually(lambda: status(directory).state == "running", "the supervisor runs")
        starter.kill()
    eventually(lambda: not directory.exists(), "the state directory is removed")
    eventually(lambda: processes_of(directory) == [], "no process is left")


def test_a_process_that_ends_is_seen_with_its_status_and_log(directory: Path, eventually: Eventually) -> None:
    handle = started(directory, eventually)
    handle.start("faulty")
    eventually(lambda: process(directory, "faulty").exit_status is not None, "the supervisor noted the end")
    (ended,) = status(directory).ended
    assert (ended.name, ended.exit_status) == ("faulty", 3)
    assert ended.log.read_text() == "broken\n"
    assert status(directory).state == "degraded"
    teardown.stop(directory, handle)


def test_an_end_is_seen_before_the_supervisor_has_noted_it(directory: Path, eventually: Eventually) -> None:
    handle = started(directory, eventually)
    pid = status(directory).supervisor_pid
    os.kill(pid, signal.SIGSTOP)
    os.kill(process(directory, "first").pid, signal.SIGKILL)
    eventually(lambda: status(directory).state == "degraded", "the end is seen")
    assert process(directory, "first").exit_status is None
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: process(directory, "first").exit_status == -signal.SIGKILL, "and then noted")
    teardown.stop(directory, handle)


def test_flags_of_etcd_do_not_come_from_the_environment(
    directory: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_NAME", "stray")
    handle = started(directory, eventually)
    environment = Path(f"/proc/{process(directory, 'first').pid}/environ").read_bytes().split(b"\0")
    assert not [entry for entry in environment if entry.startswith(b"ETCD_")]
    assert f"HOME={directory}".encode() in environment
    teardown.stop(directory, handle)


def test_a_later_process_with_the_same_number_is_not_taken_for_ours() -> None:
    ours = {"pid": os.getpid(), "start_ticks": state.own_start_ticks()}
    assert state.alive(ours)
    assert not state.alive({**ours, "start_ticks": ours["start_ticks"] - 1})


def test_a_directory_is_claimed_once_and_closed_to_others(tmp_path: Path) -> None:
    record = state.Record("x", (("dgx1-v100-32g", 2),), 1, "PATH", "/", os.getpid(), 0)
    assert state.create(tmp_path / "labs" / "x", record)
    assert not state.create(tmp_path / "labs" / "x", record)
    assert (tmp_path / "labs" / "x").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (tmp_path / "labs").iterdir()] == ["x"]
    assert state.read_record(tmp_path / "labs" / "x") == record
