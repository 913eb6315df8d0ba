"""A terminal with a user: runs the real command line in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import MUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Terminal:
    """The screen and the keyboard of a user; `process` is the command in the terminal."""

    def __init__(self, near: int, far: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = b""
        self._near = near
        self._far = far

    def see(self, wanted: bytes) -> None:
        """Wait until the text is on the screen, and forget all output up to it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while wanted not in self.seen:
            ready, _, _ = select.select([self._near], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come, but {self.seen!r}"
            self.seen += os.read(self._near, 65536)
        self.seen = self.seen.partition(wanted)[2]

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._near, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, as a user does by resizing the window."""
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[object]:
        """Return the settings of the terminal."""
        return list(termios.tcgetattr(self._far))

    def exit_code(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        return self.process.wait(timeout=DEADLINE_SECONDS)


@contextmanager
def terminal(kubeconfig: Path, *arguments: str, columns: int = 97, rows: int = 31) -> Iterator[Terminal]:
    """Run `muster` with the arguments in a terminal of this size."""
    near, far = os.openpty()
    fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [*MUSTER, *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdin=far,
        stdout=far,
        stderr=far,
        start_new_session=True,
        # without a controlling terminal, the program would get no signal when the size changes
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    try:
        yield Terminal(near, far, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(near)
        os.close(far)
