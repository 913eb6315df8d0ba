"""A real identity provider for tests, oidc-provider 9.13.3 from the npm registry, and a user who fills in its pages.

The tests are skipped if it is not in the cache; `.ci/run` installs it there.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from threading import Condition, Thread
from typing import IO, TYPE_CHECKING
from urllib.parse import parse_qsl, urljoin, urlsplit

import aiohttp
import pytest

from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

SECRET = "s3cret%:x"
SCRIPT = Path(__file__).parent / "real_provider" / "server.mjs"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def modules() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "muster" / "web" / "oidc-provider" / "node_modules"
    if shutil.which("node") is None or not (folder / "oidc-provider").is_dir():
        pytest.skip(f"{folder} has no oidc-provider, or there is no node")
    return folder


@dataclass
class RealIssuer:
    """The provider's process. `granted` are the kinds of grants for which it gave tokens."""

    url: str
    process: subprocess.Popen[str]
    granted: list[str] = field(default_factory=list)
    changed: Condition = field(default_factory=Condition)

    def read(self, output: IO[str]) -> None:
        for line in output:
            with self.changed:
                self.granted.append(line.strip())
                self.changed.notify_all()

    def until_granted(self, kind: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: kind in self.granted, DEADLINE_SECONDS), self.granted

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextmanager
def issuing(
    redirect: str, *, port: int = 0, url: str = "", certificate: Path | None = None, key: Path | None = None
) -> Iterator[RealIssuer]:
    """Run the provider on loopback; with a certificate and its key over TLS. `url` is its
    public URL, if that differs.
    """
    port = port or free_port()
    url = url or f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
    files = [str(file) for file in (certificate, key) if file]
    command = ["node", str(SCRIPT), str(modules()), str(port), url, SECRET, redirect, *files]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    issuer = RealIssuer(url, process)
    reader = Thread(target=issuer.read, args=(process.stdout,))
    reader.start()
    try:
        issuer.until_granted("up")
        yield issuer
    finally:
        issuer.stop()
        reader.join()
        process.stdout.close()


async def answer_of(
    url: str, redirect: str, login: str, *, context: ssl.SSLContext | None = None, port: int = 0
) -> dict[str, str]:
    """Fill in the provider's pages as a user; return the query of its redirect.

    With `port`, the provider is at this port of loopback, whatever its URL is.
    """
    connector = aiohttp.TCPConnector(ssl=context or True)
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as browser:

        async def send(method: str, place: str, **more: object) -> aiohttp.ClientResponse:
            parts = urlsplit(place)
            headers = {"Host": parts.netloc} if port else {}
            target = parts._replace(netloc=f"127.0.0.1:{port}").geturl() if port else place
            return await browser.request(method, target, allow_redirects=False, headers=headers, **more)  # type: ignore[arg-type]

        here, response = url, await send("GET", url)
        for _ in range(12):
            if response.status in (302, 303):
                here = urljoin(here, response.headers["Location"])
                if here.startswith(redirect):
                    return dict(parse_qsl(urlsplit(here).query))
                response = await send("GET", here)
                continue
            text = await response.text()
            form = re.search(r'<form[^>]*action="([^"]*)"', text)
            assert form, text
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))
            if 'name="login"' in text:
                fields |= {"login": login, "password": "any"}
            here = urljoin(here, unescape(form[1]))
            response = await send("POST", here, data=fields)
    raise AssertionError("the provider's pages have no end")
