"""Reads the facts of the host: the kernel's log, error counters of links and memory, states of ports, clock source.

The container has two directories of the node, `/sys/class` and `/sys/devices`, read-only below `--host-root`. The
kernel's log comes from the call syslog, which needs the capability SYSLOG.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hostfacts.clock import CLOCK_SOURCE
from hostfacts.counters import COUNTERS, MEMORY_COUNTERS, PORT_STATES

_READ_ALL: Final = 3
_BUFFER_SIZE: Final = 10
"""Actions of the call syslog: read the last messages, return the size of the kernel's buffer."""
MAX_LOG_BYTES: Final = 16 << 20
MAX_FILES: Final = 4096
_MAX_FILE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Text:
    """The text of one source; if `problem` is not empty, the source was not read."""

    text: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HostTexts:
    """The texts of all sources at one time."""

    kernel_log: Text = field(default_factory=Text)
    links: Text = field(default_factory=Text)
    clock_source: Text = field(default_factory=Text)
    ports: Text = field(default_factory=Text)
    memory: Text = field(default_factory=Text)


def unread(problem: str) -> HostTexts:
    """Return the texts if no source was read."""
    return HostTexts(*(Text(problem=problem) for _ in range(5)))


class Host:
    """The host below `root`. If `kernel_log` is a file, the log is read from this file."""

    def __init__(self, root: Path, kernel_log: Path | None = None) -> None:
        self._root = root
        self._log = kernel_log

    def read(self) -> HostTexts:
        """Return the texts of all sources. It can block, because drivers answer the reads."""
        return HostTexts(
            _text(self._kernel_log),
            _text(lambda: self._files(COUNTERS, refused="N/A ({})")),
            _text(lambda: _content(self._below(CLOCK_SOURCE))),
            _text(lambda: self._files(PORT_STATES)),
            _text(lambda: self._files(MEMORY_COUNTERS)),
        )

    def _kernel_log(self) -> str:
        return _kernel_log() if self._log is None else self._log.read_text(errors="replace")

    def _files(self, patterns: Sequence[str], refused: str = "not read ({})") -> str:
        """Return a line `path:value` for each file, as `grep -H .` does.

        The value of a file that the kernel refuses to read is `refused` with the reason.
        """
        lines = []
        for pattern in patterns:
            for path in sorted(self._root.glob(pattern.removeprefix("/"))):
                try:
                    value = _content(path).strip()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    value = refused.format(error.strerror or error)
                lines.append(f"/{path.relative_to(self._root)}:{value}")
                if len(lines) > MAX_FILES:
                    raise OSError(f"more than {MAX_FILES} files")
        return "\n".join(lines)

    def _below(self, path: str) -> Path:
        return self._root / path.removeprefix("/")


def _text(read: Callable[[], str]) -> Text:
    try:
        return Text(read())
    except OSError as error:
        return Text(problem=error.strerror or str(error))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES).decode(errors="replace")


def _kernel_log() -> str:
    """Return the messages in the kernel's buffer, each line with its time since the boot."""
    call = ctypes.CDLL(None, use_errno=True).klogctl
    size = call(_BUFFER_SIZE, None, 0)
    if size < 0:
        raise _refused()
    # a line has a prefix that the buffer does not have
    buffer = ctypes.create_string_buffer(min(2 * size, MAX_LOG_BYTES))
    length = call(_READ_ALL, buffer, len(buffer))
    if length < 0:
        raise _refused()
    return buffer.raw[:length].decode(errors="replace")


def _refused() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
