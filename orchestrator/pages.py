"""Serves a few pages of text over HTTP: health for Kubernetes, metrics for Prometheus."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web


class Page(NamedTuple):
    """An answer."""

    text: str
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


@asynccontextmanager
async def serving_pages(pages: Mapping[str, Callable[[], Page]], host: str, port: int) -> AsyncIterator[int]:
    """Serve each page at its path while the block runs; yields the port, which is a free one for 0."""

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
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
