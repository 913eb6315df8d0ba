"""One connection to a port of a pod, through the API server.

The protocol is `v4.channel.k8s.io` with two channels, data and error. Each channel begins with the port's number in two
bytes. The protocol cannot close a single direction, so the far end does not notice the end of the local input. The
connection ends when the far end closes it, or is silent for `LINGER_SECONDS` after the last local byte.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from orchestrator.cluster import channels
from orchestrator.cluster.errors import ClusterError, StreamBroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    import aiohttp

    from orchestrator.cluster.transport import Transport

PROTOCOL: Final = "v4.channel.k8s.io"
LINGER_SECONDS: Final = 10.0

_DATA: Final = 0
_ERROR: Final = 1
_PORT_BYTES: Final = 2
_CHUNK: Final = 64 << 10


class RemotePort:
    """The near end of a connection to a port of a pod."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Send bytes to the port."""
        await channels.send(self._socket, _DATA, data)

    async def received(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the port until it closes. Raises ClusterError with the node's reason for a failure."""
        heads = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        reason = b""
        silent = True
        async for channel, data in channels.received(self._socket, heads):
            skipped = min(heads[channel], len(data))
            heads[channel] -= skipped
            if channel == _ERROR:
                reason += data[skipped:]
            elif data[skipped:]:
                silent = False
                yield data[skipped:]
        if reason:
            raise ClusterError(_explained(reason))
        if silent and self._socket.close_code in channels.ABNORMAL:
            # Nodes close without a message, and their last bytes can be lost with the connection.
            raise StreamBroken("it was closed at once; does the container listen there?")


def _explained(reason: bytes) -> str:
    text = " ".join(reason.decode("utf-8", "replace").split())
    if "connection refused" in text:
        return "connection refused; nothing in the pod listens there"
    return text


@asynccontextmanager
async def remote_port(transport: Transport, path: str, port: int) -> AsyncIterator[RemotePort]:
    """Connect to a port at `path` (of a pod's `portforward`)."""
    async with transport.websocket(path, params=[("ports", str(port))], protocols=(PROTOCOL,)) as socket:
        yield RemotePort(socket)


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remote: RemotePort) -> None:
    """Carry bytes both ways between a local connection and a port until either end is done."""

    async def outward() -> None:
        while data := await reader.read(_CHUNK):
            await remote.send(data)

    async def inward() -> None:
        async for data in remote.received():
            heard.set()
            writer.write(data)
            await writer.drain()

    heard = asyncio.Event()
    out, back = asyncio.ensure_future(outward()), asyncio.ensure_future(inward())
    try:
        await asyncio.wait((out, back), return_when=asyncio.FIRST_COMPLETED)
        if not back.done() and out.exception() is None:
            await _lingered(back, heard)
        for task in (out, back):
            if task.done():
                task.result()
    except OSError:
        return  # the local end has closed, which is the normal end of a connection
    finally:
        for task in (out, back):
            task.cancel()
        await asyncio.gather(out, back, return_exceptions=True)


async def _lingered(back: asyncio.Future[None], heard: asyncio.Event) -> None:
    """Wait until the far end is done, or has been silent for too long."""
    while not back.done():
        heard.clear()
        news = asyncio.ensure_future(heard.wait())
        try:
            done, _ = await asyncio.wait(
                (back, news), timeout=LINGER_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)
        if not done:
            return
