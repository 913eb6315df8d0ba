"""Owns the processes of one lab: `supervisor.py STATE_DIRECTORY`, run by its path, with the standard library only.

Three mechanisms see that nothing of a lab is left behind:

- each process is killed by the kernel when the supervisor dies, however it dies (see `pdeathsig_exec`);
- the supervisor's standard input is a pipe from its starter. At its end, also when the starter is killed, the
  supervisor stops all, removes the state directory and ends, unless it was told to `detach`;
- SIGTERM and SIGINT stop all in the same way.

Lines on the pipe: `start NAME` starts a process of `processes.json`, `detach` lets the lab outlive its starter. The
states of the processes are in `status.json`, replaced as a whole at every change.

Processes are stopped with SIGKILL: their data is removed next. The kernel does not remove the cgroups that
`cgroups.json` names.
"""

import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PROCESSES = "processes.json"
GARBAGE_COLLECTION = "400"
"""`GOGC` of the processes.

With this value a control plane needs a sixth less processor time to start, and 130 MB more memory.
"""
STATUS = "status.json"
LOGS = "log"
CGROUPS = "cgroups.json"
CGROUP_SECONDS = 10.0

_PDEATHSIG_EXEC = Path(__file__).parent / "pdeathsig_exec.py"
_POLL_SECONDS = 0.02
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name in parentheses (field 2) may contain any character, so split after it; the state is field 3,
    # the start time field 22
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def cgroups(directory: Path) -> list[Path]:
    """Return the cgroup folders that the processes of a lab make. `directory` is the lab's state directory."""
    try:
        return [Path(folder) for folder in json.loads((directory / CGROUPS).read_text())]
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_cgroups(folders: Sequence[Path], seconds: float = CGROUP_SECONDS) -> None:
    """Remove cgroups and all cgroups below them; wait up to `seconds` until dying processes have left them.

    Raises: OSError: a process is still in one of them.
    """
    deadline = time.monotonic() + seconds
    for folder in folders:
        while folder.is_dir():
            try:
                for below, _, _ in os.walk(folder, topdown=False):
                    Path(below).rmdir()
            except FileNotFoundError:
                continue  # another process has removed it
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)


class Supervisor:
    """Starts and ends the processes in `processes.json`. Those with `"autostart": true` start immediately."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._plan: dict[str, list[str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._states: dict[str, dict[str, object]] = {}
        self._detached = False
        self._stopping = False
        self._input = b""

    def run(self) -> None:
        """Start the first processes, and serve until told to stop."""
        plan = json.loads((self._directory / PROCESSES).read_text())
        with selectors.DefaultSelector() as selector:
            wake_read, wake_write = os.pipe()
            os.set_blocking(wake_write, False)
            os.set_blocking(wake_read, False)
            signal.set_wakeup_fd(wake_write)
            for number in (*_STOP_SIGNALS, signal.SIGCHLD):
                signal.signal(number, lambda *_: None)
            selector.register(wake_read, selectors.EVENT_READ, "signal")
            selector.register(0, selectors.EVENT_READ, "starter")
            for entry in plan:
                self._plan[entry["name"]] = entry["command"]
                self._states[entry["name"]] = {"state": "waiting"}
            for entry in plan:
                if entry["autostart"]:
                    self._start(entry["name"])
            self._publish()
            while not self._stopping:
                for key, _ in selector.select():
                    if key.data == "signal":
                        self._on_signals(os.read(wake_read, 4096))
                    else:
                        self._on_input(selector)
        self._stop()

    def _start(self, name: str) -> None:
        log = self._directory / LOGS / f"{name}.log"
        command = [sys.executable, "-I", "-S", str(_PDEATHSIG_EXEC), str(os.getpid()), *self._plan[name]]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment(),
            )
        self._running[name] = process
        self._states[name] = {"state": "running", "pid": process.pid, "start_ticks": start_ticks(process.pid)}

    def _environment(self) -> dict[str, str]:
        # etcd reads flags from the environment too, and such a variable of the user must not change a lab
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ETCD_", "KWOK_", "KUBE"))
        }
        return {"GOGC": GARBAGE_COLLECTION, **inherited, "HOME": str(self._directory)}

    def _on_signals(self, numbers: bytes) -> None:
        if any(number in numbers for number in _STOP_SIGNALS):
            self._stopping = True
        changed = False
        for name, process in list(self._running.items()):
            status = process.poll()
            if status is not None:
                del self._running[name]
                self._states[name] = {**self._states[name], "state": "exited", "exit_status": status}
                changed = True
        if changed:
            self._publish()

    def _on_input(self, selector: selectors.BaseSelector) -> None:
        chunk = os.read(0, 4096)
        *lines, self._input = (self._input + chunk).split(b"\n")
        for line in lines:
            verb, _, name = line.decode().partition(" ")
            if verb == "detach":
                self._detached = True
            elif verb == "start" and name in self._plan and name not in self._running:
                self._start(name)
        if lines:
            self._publish()
        if not chunk:
            selector.unregister(0)
            self._stopping = self._stopping or not self._detached

    def _publish(self) -> None:
        status = {
            "supervisor": {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())},
            "detached": self._detached,
            "processes": self._states,
        }
        temporary = self._directory / f"{STATUS}.new"
        try:
            temporary.write_text(json.dumps(status))
            temporary.replace(self._directory / STATUS)
        except OSError as error:
            # a full disk must not take the lab down; the next change tries again
            print(f"{STATUS} cannot be written: {error}", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        try:
            remove_cgroups(cgroups(self._directory))
        except OSError as error:
            # the folders stay in the record, for the process that stops the lab
            print(
                f"the cgroup {error.filename} cannot be removed: {error.strerror}",
                file=sys.stderr,
                flush=True,
            )
            return
        shutil.rmtree(self._directory, ignore_errors=True)


def main(directory: Path) -> None:
    """Supervise the lab in `directory`."""
    os.umask(0o077)
    fcntl.fcntl(0, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    Supervisor(directory).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
