"""If a client leaves early, its connection is closed, whatever the server does."""

import asyncio
import gc
import socket
import ssl
import threading
from contextlib import aclosing

import pytest

from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.transport import Transport
from tests.cluster.certificates import Authority

BEGINNING = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"


@pytest.mark.parametrize("answer", [BEGINNING, b""], ids=["stream left", "request cancelled"])
def test_a_stream_that_ends_early_leaves_no_connection_behind(answer: bytes) -> None:
    """The server never answers TLS's close_notify. An open transport is a ResourceWarning, which fails the test."""
    authority, received, done = Authority(), threading.Event(), threading.Event()
    context = authority.server_context()
    context.verify_mode = ssl.CERT_NONE

    def serve(listening: socket.socket) -> None:
        with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(4096)
            connection.sendall(answer)
            received.set()
            done.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve, args=(listening,))
        server.start()
        access = _access(authority, listening.getsockname()[1])
        try:
            asyncio.run(_read_the_beginning(access) if answer else _cancel(access, received))
            gc.collect()
        finally:
            done.set()
            server.join()


async def _read_the_beginning(access: Access) -> None:
    async with Transport(access) as transport, aclosing(transport.stream("/log")) as chunks:
        assert await anext(chunks) == b"first"


async def _cancel(access: Access, received: threading.Event) -> None:
    """Cancel a request that the server has received and does not answer."""
    async with Transport(access) as transport:
        reading = asyncio.create_task(transport.get("/object"))
        await asyncio.to_thread(received.wait, 30)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading


def _access(authority: Authority, port: int) -> Access:
    trusting = ssl.create_default_context(cadata=authority.pem.decode())
    return Access(
        server=f"https://127.0.0.1:{port}",
        namespace="default",
        context="fake",
        user="test",
        ssl=trusting,
        token=lambda: None,
    )
