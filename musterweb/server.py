"""Runs the application in uvicorn, on a socket that is bound before anybody is told where it listens."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from musterweb.application import make_application
from musterweb.history import History
from musterweb.reports import Reports
from musterweb.sights import Sights
from orchestrator.cluster.kubeconfig import Access
from orchestrator.errors import ConfigurationError

MAX_CONNECTIONS: Final = 1000
_GRACE_SECONDS: Final = 2
SILENCE_SECONDS: Final = 20.0
"""So long a connection may take to ask for something; uvicorn itself waits for ever."""


def serve(
    access: Access,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    sights: Sights | None = None,
    history: History | None = None,
    reports: Reports | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted. `say` is told the address. Raises ConfigurationError."""
    is_secure = certificate is not None
    config = uvicorn.Config(
        make_application(access, is_secure=is_secure, sights=sights, history=history, reports=reports),
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http=Impatient,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    try:
        config.load()
        asyncio.run(_Announcing(config, say).serve())
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot serve at {host}:{port}: {error}") from error
    except SystemExit as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: is something else there?") from error


class _Announcing(uvicorn.Server):
    """Says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, say: Callable[[str], None]) -> None:
        super().__init__(config)
        self._say = say

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, and say the address."""
        await super().startup(sockets)
        for server in self.servers:
            for listener in server.sockets:
                host, port, *_ = listener.getsockname()
                scheme = "https" if self.config.is_ssl else "http"
                self._say(f"Serving at {scheme}://{f'[{host}]' if ':' in host else host}:{port}/")


class Impatient(H11Protocol):
    """Closes connections that ask for nothing, or not to the end: whoever reaches the port could take all of them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at the clock."""
        super().connection_made(transport)
        self._look = self.loop.call_later(SILENCE_SECONDS, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        self._look.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        cycle: Any = self.cycle  # None until there is a request
        if cycle is None or cycle.response_complete or cycle.more_body:
            self.transport.close()
        else:
            self._look = self.loop.call_later(SILENCE_SECONDS, self._close_if_silent)
