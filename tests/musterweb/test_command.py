from __future__ import annotations

import os
import signal
import ssl
import subprocess
import urllib.request
from typing import TYPE_CHECKING

import pytest

from musterweb.command import parse_listen
from orchestrator.errors import UsageError
from tests.cluster.certificates import Authority
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
    ],
)
def test_where_to_listen(text: str, host: str, port: int, is_loopback: bool) -> None:
    listen = parse_listen(text)
    assert (listen.host, listen.port, listen.is_loopback) == (host, port, is_loopback)


@pytest.mark.parametrize("text", ["", "80", ":80", "host:", "host:x", "host:70000", "host:-1", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
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
def test_what_would_not_be_safe_is_refused_in_one_line(
    muster: Callable[..., Outcome], arguments: tuple[str, ...], words: str
) -> None:
    outcome = muster("web", *arguments)
    assert outcome.code != 0
    assert (words in outcome.err, outcome.err.count("\n")) == (True, 1)


def test_it_serves_with_a_certificate_until_it_is_interrupted(kubeconfig: Path, tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("web", host="127.0.0.1")
    (tmp_path / "certificate.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(key)
    flags = ("--tls-certificate", str(tmp_path / "certificate.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with subprocess.Popen(
        [*MUSTER, "web", "--listen", "127.0.0.1:0", *flags],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("Serving at https://127.0.0.1:")
        context = ssl.create_default_context(cadata=authority.pem.decode())
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with urllib.request.urlopen(f"{said.split()[-1]}sign-in", context=context) as answer:  # noqa: S310
            cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-muster-form=")
        assert "Secure" in cookie
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
