"""Covers `musterweb.memory`: asyncio and glibc use less memory with its settings."""

import asyncio
import ssl
import subprocess
import sys
from asyncio import sslproto
from pathlib import Path

import pytest

from musterlab import pki
from musterweb import memory

MIB = 1 << 20
FREED = """
import sys
from musterbench.processes import rss_bytes
from musterweb import memory
import os
if sys.argv[1] == "little":
    memory.use_little()
large = bytearray(8 << 20)
del large  # from now on glibc would keep blocks of this size
blocks, between = [], []
for _ in range(200):
    blocks.append(bytearray(256 << 10))
    between.append(bytearray(600))
del blocks
print(rss_bytes(os.getpid()))
"""


async def test_a_connection_reads_into_a_small_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pki.Authority.create(tmp_path, "ca").issue("server", user="server", server=True)
    of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    of_server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    of_client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    memory.use_little()
    answer = b"x" * (3 * memory.TLS_BUFFER_BYTES)

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=of_server) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=of_client)
        protocol = writer.transport._ssl_protocol  # type: ignore[attr-defined]
        assert len(protocol._ssl_buffer) == memory.TLS_BUFFER_BYTES
        assert await reader.readexactly(len(answer)) == answer
        writer.close()
        await writer.wait_closed()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
def test_freed_memory_is_returned_to_the_system() -> None:
    usual, little = (
        int(subprocess.check_output([sys.executable, "-c", FREED, how])) for how in ("usual", "little")
    )
    assert usual - little > 30 * MIB
