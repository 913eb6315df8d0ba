"""The channel protocols of Kubernetes' WebSockets: the first byte of every message is the number of its channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orchestrator.cluster.errors import StreamBroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    import aiohttp

ABNORMAL: Final = (None, 1006)
"""Close codes of a connection that was lost without a close frame."""


async def send(socket: aiohttp.ClientWebSocketResponse, channel: int, data: bytes) -> None:
    """Send one message; return when the connection has accepted it. Raises StreamBroken."""
    import aiohttp  # slow to import, see `connection`

    try:
        await socket.send_bytes(bytes([channel]) + data)
    except (aiohttp.ClientError, OSError) as error:
        raise _lost() from error


async def received(
    socket: aiohttp.ClientWebSocketResponse, channels: Collection[int]
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield messages as (channel, bytes) until the server closes the connection.

    Raises StreamBroken if the connection is lost, and for a message outside of `channels`.
    """
    import aiohttp

    async for message in socket:
        if message.type is aiohttp.WSMsgType.ERROR:
            raise _lost() from message.data
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            raise StreamBroken("the server sent something that is no message of the channel protocol")
        if message.data[0] not in channels:
            raise StreamBroken(f"the server sent something on the unknown channel {message.data[0]}")
        yield message.data[0], message.data[1:]


def check_closed(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Raise StreamBroken if the connection ended and neither side had closed it."""
    if socket.exception() is not None or socket.close_code in ABNORMAL:
        raise _lost() from socket.exception()


def _lost() -> StreamBroken:
    return StreamBroken("the connection to the container was lost; its process may still run")
