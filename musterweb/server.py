"""Runs the application in uvicorn, on a socket that is bound before its address is printed.

If the certificate's files change, new connections use the new certificate, and no session ends.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from musterweb import memory
from musterweb.application import make_application
from musterweb.history_model import History
from musterweb.oidc import Provider
from musterweb.reports import Reports
from musterweb.sights import Sights
from orchestrator.cluster.kubeconfig import Access
from orchestrator.errors import ConfigurationError

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 1000
_GRACE_SECONDS: Final = 2
CERTIFICATE_SECONDS: Final = 60.0
"""Interval of the checks of the certificate files."""
EVERY_ADDRESS: Final = "*"
SILENCE_SECONDS: Final = 20.0
"""Maximum time until a connection sends a whole request. uvicorn itself has no limit."""


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
    provider: Provider | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted. Calls `say` with each address. Raises ConfigurationError."""
    memory.use_little()
    is_secure = certificate is not None
    config = uvicorn.Config(
        make_application(
            access, is_secure=is_secure, sights=sights, history=history, reports=reports, provider=provider
        ),
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
        sockets = [_every_address(port)] if host == EVERY_ADDRESS else None
        asyncio.run(Announcing(config, say).serve(sockets))
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot serve at {host}:{port}: {error}") from error
    except SystemExit as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: is something else there?") from error


def _every_address(port: int) -> socket.socket:
    """Return a socket for all IPv4 and IPv6 addresses of this machine. Raises OSError."""
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError):  # this machine has no IPv6
        return socket.create_server(("", port))


class Announcing(uvicorn.Server):
    """A server that reports its addresses when it listens, and loads renewed certificates."""

    def __init__(
        self,
        config: uvicorn.Config,
        say: Callable[[str], None],
        certificate_seconds: float = CERTIFICATE_SECONDS,
    ) -> None:
        super().__init__(config)
        self._say = say
        self._certificate_seconds = certificate_seconds
        self._renewing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, report the addresses, and watch the certificate."""
        await super().startup(sockets)
        if self.config.is_ssl:
            self._renewing = asyncio.create_task(self._renew())
        for server in self.servers:
            for listener in server.sockets:
                host, port, *_ = listener.getsockname()
                scheme = "https" if self.config.is_ssl else "http"
                self._say(f"Serving at {scheme}://{f'[{host}]' if ':' in host else host}:{port}/")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server, and the watch of the certificate."""
        if self._renewing is not None:
            self._renewing.cancel()
        await super().shutdown(sockets)

    async def _renew(self) -> None:
        """Load a renewed certificate for new connections. If it is invalid, the old one stays."""
        config = self.config
        if config.ssl is None or config.ssl_certfile is None:
            return
        pair = (Path(config.ssl_certfile), Path(config.ssl_keyfile or config.ssl_certfile))
        loaded = _contents(pair)
        while True:
            await asyncio.sleep(self._certificate_seconds)
            contents = _contents(pair)
            if contents in (loaded, None):
                continue
            try:
                # test the pair in another context first: if only the key is refused, the certificate would
                # stay loaded
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*pair)
                config.ssl.load_cert_chain(*pair)
            except (OSError, ssl.SSLError) as error:
                log.warning("the renewed certificate in %s cannot be used: %s", pair[0], error)
            else:
                log.warning("the certificate in %s was renewed", pair[0])
            loaded = contents


def _contents(files: tuple[Path, ...]) -> list[bytes] | None:
    """Return the content of the files; None while they cannot be read."""
    try:
        return [file.read_bytes() for file in files]
    except OSError:
        return None


class Impatient(H11Protocol):
    """Closes connections without a complete request. Otherwise one client could hold all connections."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the connection."""
        super().connection_made(transport)
        self._silence_timer = self.loop.call_later(SILENCE_SECONDS, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of the connection."""
        self._silence_timer.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        cycle: Any = self.cycle  # None until there is a request
        if cycle is None or cycle.response_complete or cycle.more_body:
            self.transport.close()
        else:
            self._silence_timer = self.loop.call_later(SILENCE_SECONDS, self._close_if_silent)
