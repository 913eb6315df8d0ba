"""The subreaper: starts ansible-playbook for muster and ends every process of the run when the run ends.

ansible-runner kills only ansible-playbook, and a killed muster kills no process. Ansible's workers have their own
sessions, so they and their children, such as DeepOps, would continue during the next run.

This process adopts them all (PR_SET_CHILD_SUBREAPER). On a signal, or when muster dies, it ends every descendant. It
holds a lock until then.

It is run as a file, with the standard library alone, on Linux. `MUSTER_SUBREAPER_OPTIONS` names a JSON file with:

- `program`
- `parent` (muster's process)
- `lock`
- `process` (the file that gets the subreaper's process number)
- `private` (the directory of the run)
- `path`
- `secrets` (a file with variables for Ansible's environment)
"""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GRACE_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.05
_CANNOT_START: Final = 127
_ENDED: Final = 130


class _Terminated(Exception):
    """A signal asks the subreaper to end."""


def main(arguments: list[str]) -> int:
    """Run ansible-playbook. Return its exit code, 130 if it was terminated, or 127 if it cannot be started."""
    options = json.loads(Path(os.environ.pop("MUSTER_SUBREAPER_OPTIONS")).read_text())
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in _SIGNALS:
        signal.signal(number, _end)
    with Path(options["lock"]).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _end_after_parent(options["parent"])
            Path(options["process"]).write_text(str(os.getpid()))
            code = _wait(_start(options, arguments))
        except _Terminated:
            code = -signal.SIGTERM
        except OSError as error:
            print(
                f"ERROR! {options['program']} cannot be started: {error.strerror}: make its environment again",
                flush=True,
            )
            return _CANNOT_START
        if code >= 0:
            return code
        _end_all()
        if os.getppid() != options["parent"]:
            shutil.rmtree(options["private"], ignore_errors=True)
        return _ENDED


def _start(options: dict[str, Any], arguments: list[str]) -> subprocess.Popen[bytes]:
    secrets = json.loads(Path(options["secrets"]).read_text())
    environment = {**os.environ, **secrets, "PATH": options["path"]}
    return subprocess.Popen(
        [options["program"], *arguments],
        env=environment,
        preexec_fn=_set_parent_death_signal,  # noqa: PLW1509 - there is no thread
    )


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Reap every child until `process` ends. Returns its exit code, or its signal as a negative number."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == process.pid:
            return os.waitstatus_to_exitcode(status)


def _end_all() -> None:
    """End every descendant: SIGTERM, then SIGKILL after a grace period."""
    terminated: set[int] = set()
    begun = time.monotonic()
    while running := _descendants(os.getpid()):
        waited = time.monotonic() - begun
        if waited > 2 * _GRACE_SECONDS:
            return
        for process in running:
            if waited > _GRACE_SECONDS or process not in terminated:
                terminated.add(process)
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL if waited > _GRACE_SECONDS else signal.SIGTERM)
        time.sleep(_POLL_SECONDS)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _descendants(process: int) -> list[int]:
    """Return the running descendants of a process."""
    children: dict[int, list[int]] = defaultdict(list)
    dead: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            number = int(path.parent.name)
            children[int(parent)].append(number)
            if state in "ZX":
                dead.add(number)
    descendants, waiting = [], [process]
    while waiting:
        below = children[waiting.pop()]
        descendants += below
        waiting += below
    return [descendant for descendant in descendants if descendant not in dead]


def _end_after_parent(parent: int) -> None:
    """Ask the kernel for SIGTERM at the parent's end. Raises _Terminated if the parent has ended already."""
    _set_parent_death_signal()
    if os.getppid() != parent:
        raise _Terminated


def _set_parent_death_signal() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise _Terminated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
