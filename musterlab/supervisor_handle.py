"""The parent's handle on the supervisor process of a lab."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from musterlab import supervisor


class SupervisorHandle:
    """Starts a supervisor and controls it through a pipe.

    If the parent ends, the pipe closes, and the supervisor notices that.
    """

    def __init__(self, directory: Path) -> None:
        read_end, self._write_end = os.pipe()
        log = directory / supervisor.LOGS / "supervisor.log"
        command = [sys.executable, "-I", "-S", str(supervisor.__file__), str(directory)]
        try:
            # not subprocess: the supervisor may outlive this process, and must not be waited for
            self._pid = os.posix_spawn(
                sys.executable,
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read_end, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except BaseException:
            os.close(self._write_end)
            raise
        finally:
            os.close(read_end)
        self._closed = False
        self._reaped = False

    def start(self, name: str) -> None:
        """Let the supervisor start a process that does not start by itself."""
        self._write(f"start {name}\n")

    def detach(self) -> None:
        """Let the lab outlive this process."""
        self._write("detach\n")
        self.close()

    def close(self) -> None:
        """Close the pipe. Unless the lab is detached, the supervisor then stops it."""
        if not self._closed:
            self._closed = True
            os.close(self._write_end)

    def reaped(self) -> bool:
        """Return whether the supervisor has ended; if so, reap it."""
        if not self._reaped:
            try:
                self._reaped = os.waitpid(self._pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # other code, such as a handler of SIGCHLD, has reaped it
                self._reaped = True
        return self._reaped

    def kill(self) -> None:
        """Kill the supervisor, and with it everything that it started."""
        if not self.reaped():
            os.kill(self._pid, signal.SIGKILL)

    def _write(self, line: str) -> None:
        # if the supervisor has ended, the next check of the status detects it
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, line.encode())
