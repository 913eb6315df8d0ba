"""Reports the progress of a long operation: as plain lines for a log, or as one live line on a terminal."""

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

PLAIN_INTERVAL_SECONDS = 10.0
LIVE_INTERVAL_SECONDS = 0.2


def printable(text: str) -> str:
    """Return the text with every character that a terminal would obey written out, as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


class Reporter:
    """Passes each line of text to `emit`, with the seconds since the start in front.

    `update` is for frequent changes: it is passed on at most once in `PLAIN_INTERVAL_SECONDS`.
    """

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._started = time.monotonic()
        self._updated = self._started

    def __call__(self, text: str) -> None:
        """Report that a stage is reached."""
        self._emit(self._stamped(text))

    def update(self, text: str) -> None:
        """Report how far the present stage has come."""
        now = time.monotonic()
        if now - self._updated >= PLAIN_INTERVAL_SECONDS:
            self._updated = now
            self._emit(self._stamped(text))

    def close(self) -> None:
        """End the output so that other text can follow."""

    def _stamped(self, text: str) -> str:
        return f"{time.monotonic() - self._started:6.1f} s  {printable(text)}"


class LiveReporter(Reporter):
    """Rewrites one line of a terminal for every `update`; stages stay as lines of their own."""

    def __init__(self, terminal: TextIO, columns: int) -> None:
        super().__init__(lambda text: print(text, file=terminal, flush=True))
        self._terminal = terminal
        self._columns = columns
        self._live = False
        self._drawn = 0.0

    def __call__(self, text: str) -> None:
        """Report that a stage is reached."""
        self.close()
        super().__call__(text)

    def update(self, text: str) -> None:
        """Redraw the live line."""
        now = time.monotonic()
        if now - self._drawn < LIVE_INTERVAL_SECONDS:
            return
        self._drawn = now
        self._terminal.write("\r\x1b[2K" + self._stamped(text)[: self._columns - 1])
        self._terminal.flush()
        self._live = True

    def close(self) -> None:
        """Remove the live line."""
        if self._live:
            self._terminal.write("\r\x1b[2K")
            self._terminal.flush()
            self._live = False


def as_reporter(progress: Callable[[str], None]) -> Reporter:
    """Wrap a plain callback; a reporter is returned unchanged."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


def terminal_reporter() -> Reporter:
    """Return a reporter to stderr: a live line on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return LiveReporter(sys.stderr, shutil.get_terminal_size().columns)
    return Reporter(lambda text: print(text, file=sys.stderr, flush=True))
