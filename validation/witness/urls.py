"""Opens a URL as a browser does, without a proxy. Redirects to the same host are followed."""

import http.client
import socket
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

_SECONDS: Final = 20
_REDIRECTS: Final = 5
_LIMIT: Final = 1 << 20
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


class Opened(NamedTuple):
    """The HTTP status of a URL. It is 0 without an answer, and `problem` is then the reason."""

    status: int
    problem: str = ""


def open_url(url: str, connect: Callable[[], socket.socket] | None = None) -> Opened:
    """Return the status after all redirects. `connect` returns a connection that is used for every host."""
    host = urlsplit(url).netloc
    for _ in range(_REDIRECTS):
        try:
            status, location = _get(url, connect)
        except (http.client.HTTPException, OSError, ValueError) as error:
            return Opened(0, str(error) or type(error).__name__)
        url = urljoin(url, location)
        if status not in _MOVED or not location or urlsplit(url).netloc != host:
            return Opened(status)
    return Opened(0, f"more than {_REDIRECTS} redirects")


def _get(url: str, connect: Callable[[], socket.socket] | None) -> tuple[int, str]:
    """Return the status and the header Location of one answer."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_SECONDS)
    try:
        if connect is not None:
            connection.sock = connect()
        connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        response = connection.getresponse()
        response.read(_LIMIT)
        return response.status, response.headers.get("Location") or ""
    finally:
        connection.close()
