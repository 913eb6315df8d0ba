"""`muster web` on a free port of loopback, in its own thread, and a browser without a screen: forms and pages."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import uvicorn

from musterweb.application import make_application
from musterweb.server import Impatient
from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from musterweb.history_model import History
    from musterweb.oidc import Provider
    from musterweb.reports import Reports
    from musterweb.sessions import Sessions
    from musterweb.sights import Sights
    from orchestrator.cluster.kubeconfig import Access


@contextmanager
def serving(
    access: Access,
    sessions: Sessions | None = None,
    *,
    history: History | None = None,
    reports: Reports | None = None,
    sights: Sights | None = None,
    provider: Provider | None = None,
    port: int = 0,
) -> Iterator[int]:
    """Serve the pages; yield the port."""
    config = uvicorn.Config(
        make_application(
            access, is_secure=False, sessions=sessions, sights=sights, history=history, reports=reports,
            provider=provider,
        ),
        host="127.0.0.1", port=port, http=Impatient, ws="none", log_config=None, access_log=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = _Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        assert server.is_up.wait(DEADLINE_SECONDS)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


class _Server(uvicorn.Server):
    """A server that reports when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str
    cookies: list[str]

    @property
    def words(self) -> str:
        """Return the text without markup."""
        return unescape(re.sub(r"<[^>]+>", " ", self.text))

    def field(self, name: str) -> str:
        """Return the value of a field in the form."""
        found = re.search(rf'name="{name}" value="([^"]*)"', self.text)
        assert found, name
        return unescape(found[1])

    def row(self, first: str) -> list[str]:
        """Return the cells of the table row that begins with this text."""
        for row in re.findall(r"<tr>(.*?)</tr>", self.text, re.DOTALL):
            cells = [
                unescape(re.sub(r"<[^>]+>", "", cell))
                for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
            ]
            if cells and cells[0] == first:
                return cells
        raise AssertionError(f"no row {first}")


@dataclass
class Browser:
    """Keeps cookies, and follows no redirect. `strict` are the cookies that a link on another site does not send."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    strict: set[str] = field(default_factory=set)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        return self.request("POST", path, urlencode(fields), **{"Origin": self.origin, **headers})

    def arrive(self, path: str) -> Answer:
        """Open a page by a link or redirect of another site."""
        return self.get(path, **{"Sec-Fetch-Site": "cross-site"})

    def request(self, method: str, path: str, body: str = "", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        sent = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        shown = set(self.cookies) - (self.strict if headers.get("Sec-Fetch-Site") == "cross-site" else set())
        sent |= {"Cookie": "; ".join(f"{name}={self.cookies[name]}" for name in sorted(shown))}
        connection.request(method, path, body or None, {**sent, **headers})
        response = connection.getresponse()
        text = response.read().decode()
        cookies = [value for name, value in response.getheaders() if name == "set-cookie"]
        for cookie in cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            if "max-age=0" in cookie.lower():
                self.cookies.pop(name, None)
                self.strict.discard(name)
                continue
            self.cookies[name] = value.strip('"')
            (self.strict.add if "samesite=strict" in cookie.lower() else self.strict.discard)(name)
        connection.close()
        return Answer(response.status, dict(response.getheaders()), text, cookies)

    @contextmanager
    def opening(self, path: str) -> Iterator[socket.socket]:
        """Yield a connection on which a page was requested, and nothing was read yet."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_SECONDS) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
            yield connection

    def sign_in(self, token: str, project: str = "") -> Answer:
        form_token = self.get("/sign-in").field("form_token")
        return self.post("/sign-in", {"token": token, "project": project, "form_token": form_token})

    @contextmanager
    def events(self, page: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        """Yield the stream of a page: the kinds of events with their data."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request("GET", "/events?" + urlencode({"page": page}), headers={"Cookie": cookie})
        response = connection.getresponse()
        assert response.status == 200, response.read()

        def read() -> Iterator[tuple[str, dict[str, Any]]]:
            kind = ""
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

        try:
            yield read()
        finally:
            if connection.sock is not None:
                connection.sock.close()
            response.close()
            connection.close()
