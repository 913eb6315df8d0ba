from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from cryptography import x509

from musterweb.command import parse_listen
from musterweb.server import Announcing
from orchestrator.errors import UsageError
from tests.cluster.certificates import Authority
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import MUSTER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:8480", "127.0.0.1", 8480, True),
        ("127.8.8.8:0", "127.8.8.8", 0, True),
        ("[::1]:1", "::1", 1, True),
        ("localhost:80", "localhost", 80, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),  # noqa: S104
        ("[::]:80", "::", 80, False),
        ("localhost.example:80", "localhost.example", 80, False),
        ("10.0.0.1:80", "10.0.0.1", 80, False),
        ("*:80", "*", 80, False),
    ],
)
def test_where_to_listen(text: str, host: str, port: int, is_loopback: bool) -> None:
    listen = parse_listen(text)
    assert (listen.host, listen.port, listen.is_loopback) == (host, port, is_loopback)


@pytest.mark.parametrize("text", ["", "80", ":80", "host:", "host:x", "host:70000", "host:-1", "host:²"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ADDRESS:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "0.0.0.0:0"), "beyond loopback tokens would travel unprotected"),
        (("--tls-key", "key.pem"), "give both"),
        (("--as", "ann"), "No such option"),
        (("--context", "nowhere"), "nowhere"),
        (("--tls-key", "missing.pem", "--tls-certificate", "missing.pem"), "cannot serve at"),
    ],
)
def test_unsafe_options_are_refused_in_one_line(
    muster: Callable[..., Outcome], arguments: tuple[str, ...], words: str
) -> None:
    outcome = muster("web", *arguments)
    assert outcome.code != 0
    assert (words in outcome.err, outcome.err.count("\n")) == (True, 1)


@pytest.mark.parametrize("address", ["127.0.0.1", "*"])
def test_it_serves_with_a_certificate_until_it_is_interrupted(
    kubeconfig: Path, tmp_path: Path, address: str
) -> None:
    authority = Authority()
    certificate, key = authority.issue("web", host="127.0.0.1")
    (tmp_path / "certificate.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    flags = ("--tls-certificate", str(tmp_path / "certificate.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with subprocess.Popen(
        [*MUSTER, "web", "--listen", f"{address}:0", *flags],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("Serving at https://")
        url = f"https://127.0.0.1:{urlsplit(said.split()[-1]).port}"
        context = ssl.create_default_context(cadata=authority.pem.decode())
        by_name = urllib.request.Request(f"{url}/sign-in", headers={"Host": "muster.example.com"})  # noqa: S310
        with urllib.request.urlopen(by_name, context=context) as answer:  # noqa: S310
            assert answer.headers["Strict-Transport-Security"].startswith("max-age=")
        with urllib.request.urlopen(f"{url}/sign-in", context=context) as answer:  # noqa: S310
            cookie = answer.headers["Set-Cookie"]
            assert "Strict-Transport-Security" not in answer.headers, "nothing of loopback is held to TLS"
        assert cookie.startswith("__Host-muster-form=")
        assert "Secure" in cookie
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)


async def test_a_renewed_certificate_is_taken_up_and_one_that_cannot_be_used_is_not(tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    files = (tmp_path / "certificate.pem", tmp_path / "key.pem")

    def write(certificate: bytes, key: bytes) -> None:
        for file, content in zip(files, (certificate, key), strict=True):
            file.write_bytes(content)

    async def shown(port: int) -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        number = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        writer.close()
        await writer.wait_closed()
        return int(number, 16)

    def serial(certificate: bytes) -> int:
        return x509.load_pem_x509_certificate(certificate).serial_number

    first, second = (authority.issue("web", host="127.0.0.1") for _ in range(2))
    write(*first)
    config = uvicorn.Config(
        _nothing,
        host="127.0.0.1",
        port=0,
        ssl_certfile=files[0],
        ssl_keyfile=files[1],
        log_config=None,
        ws="none",
    )
    config.load()
    server = Announcing(config, lambda _line: None, certificate_seconds=0.01)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not server.started:  # noqa: ASYNC110 - uvicorn says it nowhere else
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            assert await shown(port) == serial(first[0])
            write(second[0], first[1])
            assert await shown(port) == serial(first[0])
            write(*second)
            while await shown(port) != serial(second[0]):  # noqa: ASYNC110 - no line tells of a handshake
                await asyncio.sleep(0.01)
    finally:
        server.should_exit = True
        await serving


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": f"{scope['type']}.startup.complete"})
    await receive()
    await send({"type": f"{scope['type']}.shutdown.complete"})
