from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from aiohttp import WSMsgType, web

from orchestrator.cluster import remote_process as module
from orchestrator.cluster.errors import ClusterError, Forbidden, NotExecutable, NotFound, StreamBroken
from orchestrator.cluster.remote_process import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, remote_process
from orchestrator.cluster.transport import Transport
from tests.cluster.fake_api_server import FakeApiServer, access_to, error_answer
from tests.cluster.fake_streams import last_word, playing

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = "/api/v1/namespaces/team/pods/train-0/exec"


async def outcome(*messages: bytes, code: int = 1000) -> tuple[list[tuple[int, bytes]], int]:
    """Run a process on a server that sends these messages, and then closes with this code."""

    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        for message in messages:
            await socket.send_bytes(message)
        await socket.close(code=code)

    async with (
        playing(script) as (transport, _),
        remote_process(transport, PATH, container="main", command=("ls",)) as process,
    ):
        said = [each async for each in process.output()]
        return said, process.exit_code


def on(channel: int, data: bytes) -> bytes:
    return bytes([channel]) + data


async def test_the_request_names_the_command_word_by_word_and_the_protocol() -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(on(ERROR, last_word()))

    words = ("sh", "-c", "echo 'ä' && $(x)&y=1", "")
    async with playing(script) as (transport, requests):
        async with remote_process(
            transport, PATH, container="main", command=words, stdin=True, tty=True
        ) as process:
            assert [each async for each in process.output()] == []
        (request,) = requests
        assert (request.method, request.path) == ("GET", PATH)
        assert request.query.getall("command") == list(words)
        flags = {key: request.query[key] for key in ("container", "stdin", "stdout", "stderr", "tty")}
        assert flags == {
            "container": "main",
            "stdin": "true",
            "stdout": "true",
            "stderr": "false",
            "tty": "true",
        }
        assert request.headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"
        assert request.headers["Authorization"] == "Bearer secret"


async def test_output_keeps_its_bytes_its_channel_and_its_order() -> None:
    said, exit_code = await outcome(
        on(STDOUT, b"\xff\x00one"),
        on(STDERR, b"two"),
        on(STDOUT, b""),
        on(STDOUT, b"\n"),
        on(ERROR, last_word()),
    )
    assert said == [(STDOUT, b"\xff\x00one"), (STDERR, b"two"), (STDOUT, b"\n")]
    assert exit_code == 0


@pytest.mark.parametrize("pieces", [1, 2, 7])
async def test_the_exit_code_is_that_of_the_process_however_the_last_word_is_split(pieces: int) -> None:
    word = last_word(137)
    size = -(-len(word) // pieces)
    parts = [on(ERROR, word[start : start + size]) for start in range(0, len(word), size)]
    assert await outcome(*parts) == ([], 137)


async def test_a_message_may_come_in_several_frames() -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        assert request.transport is not None
        # 0x02: binary, more follows; 0x00: continuation; 0x80: the last frame
        request.transport.write(b"\x02\x03\x01he" + b"\x00\x01l" + b"\x80\x02lo")
        await socket.send_bytes(on(ERROR, last_word()))
        await socket.close()

    async with (
        playing(script) as (transport, _),
        remote_process(transport, PATH, container="main") as process,
    ):
        assert [each async for each in process.output()] == [(STDOUT, b"hello")]


@pytest.mark.parametrize(
    ("messages", "code", "kind", "text"),
    [
        ((on(ERROR, last_word(message="no such\ncommand")),), 1000, ClusterError, "^no such command$"),
        (
            (
                on(
                    ERROR,
                    last_word(message='failed: OCI runtime: exec: "sh": executable file not found in $PATH'),
                ),
            ),
            1000,
            NotExecutable,
            r'^the container cannot run "sh": executable file not found in \$PATH$',
        ),
        ((on(ERROR, b"{"),), 1000, StreamBroken, "cannot be read"),
        ((on(STDOUT, b"x"),), 1000, StreamBroken, "code 1000"),
        ((), 1011, StreamBroken, "code 1011"),
        ((b"",), 1000, StreamBroken, "no message"),
        ((on(9, b"x"),), 1000, StreamBroken, "channel 9"),
    ],
)
async def test_an_end_that_is_none_is_an_error(
    messages: Sequence[bytes], code: int, kind: type[ClusterError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        await outcome(*messages, code=code)


async def test_a_cut_connection_is_an_error() -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.send_bytes(on(STDOUT, b"x"))
        await socket.receive()
        assert request.transport is not None
        request.transport.abort()

    async with (
        playing(script) as (transport, _),
        remote_process(transport, PATH, container="main", stdin=True) as process,
    ):
        said = process.output()
        assert await anext(said) == (STDOUT, b"x")
        await process.send(b"now")
        with pytest.raises(StreamBroken, match="was lost"):
            await anext(said)


async def test_a_half_open_connection_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)

    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        while (await socket.receive()).type in (WSMsgType.PING, WSMsgType.BINARY):
            pass  # the server sends no pong

    async with (
        playing(script, autoping=False) as (transport, _),
        remote_process(transport, PATH, container="main") as process,
    ):
        with pytest.raises(StreamBroken, match="was lost"):
            async for _each in process.output():
                pass


async def test_sent_bytes_arrive_on_their_channel_in_parts_that_fit() -> None:
    received: list[bytes] = []

    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        while len(received) < 5:
            received.append(await socket.receive_bytes())
        await socket.send_bytes(on(ERROR, last_word(3)))
        await socket.close()

    async with (
        playing(script) as (transport, _),
        remote_process(transport, PATH, container="main", stdin=True) as process,
    ):
        await process.resize(120, 40)
        await process.send(b"x" * 70_000)
        await process.close_stdin()
        assert [each async for each in process.output()] == []
        assert process.exit_code == 3
    assert (received[0][0], json.loads(received[0][1:])) == (RESIZE, {"Width": 120, "Height": 40})
    assert [each[0] for each in received[1:4]] == [STDIN] * 3
    assert b"".join(each[1:] for each in received[1:4]) == b"x" * 70_000
    assert received[4] == bytes([CLOSE, STDIN])


async def test_a_refusal_is_told_with_the_servers_words(server: FakeApiServer) -> None:
    server.on(
        "GET", PATH, error_answer(403, "Forbidden", 'pods "train-0" is forbidden: cannot create pods/exec')
    )
    server.on("GET", PATH + "x", error_answer(404, "NotFound", 'pods "train-0" not found'))
    async with Transport(access_to(server)) as transport:
        with pytest.raises(Forbidden, match="cannot create pods/exec"):
            async with remote_process(transport, PATH, container="main"):
                pass
        with pytest.raises(NotFound, match='"train-0" not found'):
            async with remote_process(transport, PATH + "x", container="main"):
                pass


async def test_a_server_that_does_not_speak_the_protocol_is_named_as_too_old() -> None:
    async def script(socket: web.WebSocketResponse, request: web.Request) -> None:
        await socket.receive()

    async with playing(script, protocols=()) as (transport, _):
        with pytest.raises(ClusterError, match=r"v5\.channel\.k8s\.io.* too old"):
            async with remote_process(transport, PATH, container="main"):
                pass
