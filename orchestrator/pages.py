"""Serves a few pages of text over HTTP: health for Kubernetes, metrics for Prometheus.

The connections are bounded: above `MAX_CONNECTIONS` the oldest is cut. So a client with 2,000 idle connections cannot
block the kubelet's probes or exhaust the file descriptors.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from aiohttp import web

MAX_CONNECTIONS: Final = 128
"""Maximum number of open connections. A burst of new connections can double this number before the oldest connections
are closed.

An answer takes milliseconds, so the oldest connection is idle.
"""


class Page(NamedTuple):
    """An answer."""

    text: str
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


@asynccontextmanager
async def serving_pages(pages: Mapping[str, Callable[[], Page]], host: str, port: int) -> AsyncIterator[int]:
    """Serve each page at its path until the end of the context; yield the port.

    If `port` is 0, the system chooses a free port.
    """

    def handler(page: Callable[[], Page]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_request: web.Request) -> web.Response:
            text, status, content_type = page()
            return web.Response(body=text.encode(), status=status, headers={"Content-Type": content_type})

        return answer

    app = web.Application()
    for path, page in pages.items():
        app.router.add_get(path, handler(page))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("a runner that is set up has a server")
        server = await asyncio.get_running_loop().create_server(
            _bounded(runner.server), host, port, backlog=MAX_CONNECTIONS
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
    finally:
        await runner.cleanup()


def _bounded(pages: web.Server) -> Callable[[], asyncio.Protocol]:
    """Return a factory of protocols that cuts the oldest connection if there are too many."""

    def protocol() -> asyncio.Protocol:
        connections = pages.connections
        for oldest in connections[: len(connections) - MAX_CONNECTIONS + 1]:
            if oldest.transport is not None:
                oldest.transport.abort()
        return pages()

    return protocol
