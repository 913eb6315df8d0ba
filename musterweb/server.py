"""Runs the application in uvicorn, on a socket that is bound before anybody is told where it listens."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from musterweb.application import make_application
from orchestrator.cluster.kubeconfig import Access
from orchestrator.errors import ConfigurationError

MAX_CONNECTIONS: Final = 1000
_GRACE_SECONDS: Final = 2


def serve(
    access: Access,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted. `say` is told the address. Raises ConfigurationError."""
    is_secure = certificate is not None
    config = uvicorn.Config(
        make_application(access, is_secure=is_secure),
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http="h11",
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
