"""A process in a container: its input, its output, and its end (`exec` and `attach`).

Both are WebSockets of the protocol `v5.channel.k8s.io` (API servers from 1.30 on): the first byte of every message is
the number of its channel. The last message of the server is a `Status` on the channel ERROR.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orchestrator.cluster import channels
from orchestrator.cluster.errors import ClusterError, NotExecutable, StreamBroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    import aiohttp

    from orchestrator.cluster.transport import Transport

PROTOCOL: Final = "v5.channel.k8s.io"

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
ERROR: Final = 3
RESIZE: Final = 4
CLOSE: Final = 255

HEARTBEAT_SECONDS: Final = 40.0
STDIN_BYTES_PER_MESSAGE: Final = 32 << 10

_NOT_EXECUTABLE = re.compile(r'exec: ("[^"]*"): (.*)$')
"""Matches the end of a container runtime's message about a command that cannot be executed.

Before it come prefixes of several layers.
"""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class RemoteProcess:
    """The near end of the streams of a process in a container.

    Iterate over `output` until it ends; `exit_code` is known then. Everything raises subclasses of `ClusterError`:
    `StreamBroken` when the connection is lost or ends before the process has.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._said = b""
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the process.

        For `attach` it is 0, since the server does not send it. Raises RuntimeError before the end.
        """
        if self._exit_code is None:
            raise RuntimeError("the process has not ended: read its output to the end first")
        return self._exit_code

    async def send(self, data: bytes) -> None:
        """Write to the process's standard input; return when the connection has accepted the data."""
        for start in range(0, len(data), STDIN_BYTES_PER_MESSAGE):
            await channels.send(self._socket, STDIN, data[start : start + STDIN_BYTES_PER_MESSAGE])

    async def close_stdin(self) -> None:
        """Tell the process that no more input comes."""
        await channels.send(self._socket, CLOSE, bytes([STDIN]))

    async def resize(self, columns: int, rows: int) -> None:
        """Tell the process the size of its terminal."""
        size = json.dumps({"Width": columns, "Height": rows})
        await channels.send(self._socket, RESIZE, size.encode())

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield the output of the process, as (STDOUT or STDERR, bytes), until it ends."""
        async for channel, data in channels.received(self._socket, (STDOUT, STDERR, ERROR, CLOSE)):
            if channel == ERROR:
                self._said += data
            elif channel != CLOSE and data:
                yield channel, data
        if not self._said:
            channels.check_closed(self._socket)
            raise StreamBroken(
                f"the server closed the connection (code {self._socket.close_code}) before the process ended; "
                "the node may have a problem"
            )
        self._exit_code = _exit_code(self._said)


def _exit_code(text: bytes) -> int:
    """Return the exit code of the last message. Raises NotExecutable, ClusterError."""
    try:
        status = msgspec.json.decode(text, type=_Status)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StreamBroken(f"the server's last word cannot be read: {text[:200]!r}") from error
    if status.status == "Success":
        return 0
    if status.reason == "NonZeroExitCode":
        for cause in status.details.causes if status.details else []:
            if cause.reason == "ExitCode" and cause.message.isdecimal():
                return int(cause.message)
    message = " ".join(status.message.split())
    if match := _NOT_EXECUTABLE.search(message):
        raise NotExecutable(f"the container cannot run {match[1]}: {match[2]}")
    raise ClusterError(message or "the process could not be run")


@asynccontextmanager
async def remote_process(
    transport: Transport,
    path: str,
    *,
    container: str,
    command: Sequence[str] = (),
    stdin: bool = False,
    tty: bool = False,
) -> AsyncIterator[RemoteProcess]:
    """Run `command` at `path` (of a pod's `exec`), or attach to the running process (`attach`, without a command).

    With `tty` the process has a terminal, and STDERR arrives as STDOUT. The end of the context ends the connection,
    not the process.
    """
    values: list[tuple[str, Any]] = [
        *(("command", word) for word in command),
        ("container", container),
        ("stdin", stdin),
        ("stdout", True),
        ("stderr", not tty),
        ("tty", tty),
    ]
    params = [(key, str(value).lower() if isinstance(value, bool) else value) for key, value in values]
    # A process that does not read its input can block the server's answers. Then silence does not mean a lost
    # connection.
    heartbeat = None if stdin and not tty else HEARTBEAT_SECONDS
    async with transport.websocket(
        path, params=params, protocols=(PROTOCOL,), heartbeat_seconds=heartbeat
    ) as socket:
        yield RemoteProcess(socket)
