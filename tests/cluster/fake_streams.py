"""An API server on loopback whose WebSockets a test plays by hand.

    async with playing(script) as (transport, asked):
        ...

The server calls `script` with each WebSocket after the handshake. `asked` has the requests so far.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.transport import Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

Script = "Callable[[web.WebSocketResponse, web.Request], Awaitable[None]]"


@asynccontextmanager
async def playing(
    script: Callable[[web.WebSocketResponse, web.Request], Awaitable[None]],
    *,
    protocols: Sequence[str] = ("v5.channel.k8s.io", "v4.channel.k8s.io"),
    autoping: bool = True,
) -> AsyncIterator[tuple[Transport, list[web.Request]]]:
    """Serve on a free port of 127.0.0.1, and yield a transport to it and the requests so far."""
    requests: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        socket = web.WebSocketResponse(protocols=protocols, autoping=autoping)
        await socket.prepare(request)
        await script(socket, request)
        return socket

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        access = Access(
            server=url, namespace="default", context="fake", user="test", ssl=None, token=lambda: "secret"
        )
        async with Transport(access) as transport:
            yield transport, requests
    finally:
        await runner.cleanup()


def last_word(exit_code: int = 0, *, message: str = "") -> bytes:
    """Return the `Status` that the server sends when a process ends."""
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if message:
        status = {"status": "Failure", "reason": "InternalError", "message": message, "code": 500}
    elif exit_code:
        causes = [{"reason": "ExitCode", "message": str(exit_code)}]
        status = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(status).encode()
