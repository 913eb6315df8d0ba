from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orchestrator.cluster import forwarding
from orchestrator.cluster.errors import ClusterError, StreamBroken
from orchestrator.cluster.forwarding import relay, remote_port
from tests.cluster.fake_streams import playing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

PATH = "/api/v1/namespaces/team/pods/train-0/portforward"
PORT = (80).to_bytes(2, "little")
DATA, ERROR = b"\x00", b"\x01"


async def hello(socket: web.WebSocketResponse) -> None:
    await socket.send_bytes(DATA + PORT)
    await socket.send_bytes(ERROR + PORT)


async def test_the_number_of_the_port_is_no_part_of_the_data_in_any_split() -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        for message in (DATA + PORT[:1], ERROR + PORT, DATA + PORT[1:] + b"one", DATA + b"two"):
            await socket.send_bytes(message)
        await socket.close()

    async with playing(script) as (transport, requests):
        async with remote_port(transport, PATH, 80) as remote:
            assert [each async for each in remote.received()] == [b"one", b"two"]
        assert requests[0].query["ports"] == "80"
        assert requests[0].headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"failed: dial tcp4 127.0.0.1:80: connect: connection refused\n", "^connection refused; nothing"),
        (b"no such\nsandbox", "^no such sandbox$"),
    ],
)
async def test_a_failure_of_the_node_is_reported(said: bytes, message: str) -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        await hello(socket)
        await socket.send_bytes(ERROR + said)
        await socket.close()

    async with playing(script) as (transport, _), remote_port(transport, PATH, 80) as remote:
        with pytest.raises(ClusterError, match=message):
            async for _each in remote.received():
                pass


@pytest.mark.parametrize("says_something", [True, False])
async def test_an_end_without_a_word_is_suspect_only_if_nothing_was_said(says_something: bool) -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        await hello(socket)
        if says_something:
            await socket.send_bytes(DATA + b"x")
        assert request.transport is not None
        request.transport.close()

    async with playing(script) as (transport, _), remote_port(transport, PATH, 80) as remote:
        received = remote.received()
        if says_something:
            assert [each async for each in received] == [b"x"]
        else:
            with pytest.raises(StreamBroken, match="does the container listen"):
                await anext(received)


async def conversation(
    far: Callable[[web.WebSocketResponse], Awaitable[None]],
    near: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """Connect a local program with a remote one through `relay`, and return when `relay` ends."""

    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        await hello(socket)
        await far(socket)

    async with playing(script) as (transport, _), remote_port(transport, PATH, 80) as remote:
        done = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await relay(reader, writer, remote)
                done.set_result(None)
            finally:
                writer.close()

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with listener, asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
            await near(reader, writer)
            await done
            writer.close()


async def test_bytes_go_both_ways_until_the_far_end_closes() -> None:
    async def far(socket: web.WebSocketResponse) -> None:
        heard = b""
        while len(heard) < 200_000:
            heard += (await socket.receive_bytes())[1:]
        await socket.send_bytes(DATA + heard[::-1])
        await socket.close()

    async def near(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = bytes(range(250)) * 800
        writer.write(sent)
        assert await reader.read() == sent[::-1]

    await conversation(far, near)


async def test_an_answer_that_comes_after_the_near_end_said_all_is_delivered() -> None:
    async def far(socket: web.WebSocketResponse) -> None:
        assert await socket.receive_bytes() == DATA + b"question"
        await socket.send_bytes(DATA + b"ans")
        await socket.send_bytes(DATA + b"wer")
        await socket.close()

    async def near(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"question")
        writer.write_eof()
        assert await reader.read() == b"answer"

    await conversation(far, near)


async def test_a_silent_far_end_is_closed_when_the_near_end_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "LINGER_SECONDS", 0.05)

    async def far(socket: web.WebSocketResponse) -> None:
        while not socket.closed:
            await socket.receive()

    async def near(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()

    await conversation(far, near)
