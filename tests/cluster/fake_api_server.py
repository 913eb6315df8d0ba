"""A scripted API server on loopback: it gives the answers of the test's script in their order, and stores the requests.

    server.on("GET", "/api/v1/pods", Answer(page(pod("a"))), Answer(status(500)))
    server.on("WATCH", "/api/v1/pods", Watch(event("ADDED", pod("b")), END), Watch(CUT))

The last answer of a path repeats, except that a watch beyond the script stays open and silent.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from orchestrator.cluster.kubeconfig import Access

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

JSON = dict[str, Any]

END: Final = "the server ends the watch"
CUT: Final = "the connection is cut"
SILENCE: Final = "nothing comes any more, and the connection stays"


@dataclass(frozen=True)
class Request:
    """One received request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """A complete answer. `body` is JSON, or bytes that are sent unchanged."""

    body: JSON | bytes = field(default_factory=dict)
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Watch:
    """A streamed answer: events (objects), raw bytes, asyncio events to wait for, and at the
    end END, CUT or SILENCE.
    """

    def __init__(self, *steps: JSON | bytes | str | asyncio.Event) -> None:
        self.steps = steps


class Hang:
    """The server never answers."""


Scripted = Answer | Watch | Hang | str


class FakeApiServer:
    """A scripted API server; see the module."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self._scripts: dict[tuple[str, str], list[Scripted | Callable[[Request], Answer]]] = defaultdict(list)
        self._stopped = asyncio.Event()

    def on(self, method: str, path: str, *answers: Scripted | Callable[[Request], Answer]) -> None:
        """Set the answers to the next requests. The method WATCH is a GET with `watch=true`. An answer can be a
        function.
        """
        self._scripts[method, path].extend(answers)

    def requests_of(self, method: str, path: str | None = None) -> list[Request]:
        """Return the received requests with a method, and with a path if one is given."""
        return [
            request
            for request in self.requests
            if request.method == method and (path is None or request.path == path)
        ]

    def stop(self) -> None:
        """Let every hanging request end."""
        self._stopped.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request from the script."""
        method = "WATCH" if request.query.get("watch") == "true" else request.method
        text = await request.text()
        seen = Request(
            method,
            request.path,
            dict(request.query),
            dict(request.headers),
            json.loads(text) if text else None,
        )
        self.requests.append(seen)
        script = self._scripts[method, request.path]
        answer: Any
        if method == "WATCH":
            answer = script.pop(0) if script else Watch(SILENCE)
        elif script:
            answer = script.pop(0) if len(script) > 1 else script[0]
        else:
            answer = Answer(
                status(500, "InternalError", f"nothing is scripted for {method} {request.path}"), 500
            )
        if callable(answer):
            answer = answer(seen)
        if isinstance(answer, Answer):
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            return web.Response(status=answer.code, body=body, headers=dict(answer.headers))
        return await self._unusual(request, answer)

    async def _unusual(self, request: web.Request, answer: Watch | Hang | str) -> web.StreamResponse:
        response = web.StreamResponse()
        steps = answer.steps if isinstance(answer, Watch) else (answer,)
        if isinstance(answer, Watch):
            await response.prepare(request)
        for step in steps:
            if step == END:
                break
            if step == CUT:
                assert request.transport is not None
                request.transport.abort()
                break
            if step == SILENCE or isinstance(step, Hang):
                await self._stopped.wait()
                break
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            await response.write(step if isinstance(step, bytes) else json.dumps(step).encode() + b"\n")
        return response


@asynccontextmanager
async def serving(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApiServer]:
    """Run a server on a free port of 127.0.0.1."""
    server = FakeApiServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        port = runner.addresses[0][1]
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server
    finally:
        server.stop()
        await runner.cleanup()


def access_to(server: FakeApiServer, *, token: Callable[[], str | None] = lambda: None) -> Access:
    """Return access to the server over plain HTTP."""
    return Access(server=server.url, namespace="default", context="fake", user="test", ssl=None, token=token)


def status(code: int, reason: str = "", message: str = "", **details: Any) -> JSON:
    """Return a `Status` object as the API server sends it for a failure."""
    answer: JSON = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return {**answer, "details": details} if details else answer


def error_answer(code: int, reason: str = "", message: str = "", *, retry_after: str = "") -> Answer:
    """Return a complete answer with an error."""
    headers = {"Retry-After": retry_after} if retry_after else {}
    return Answer(status(code, reason, message), code, headers)


def pod(name: str, *, uid: str = "", version: str = "1", node: str = "", **metadata: Any) -> JSON:
    """Return a pod; its uid is `uid-NAME` unless given."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            **metadata,
        },
        "spec": {"containers": [{"name": "main", "image": "image"}], **({"nodeName": node} if node else {})},
        "status": {"phase": "Pending"},
    }


def page(*items: JSON, version: str = "10", more: str = "") -> Answer:
    """Return a page of a list; `more` is its continue token."""
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return Answer({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(items)})


def event(type_: str, thing: JSON) -> JSON:
    """Return one event of a watch."""
    return {"type": type_, "object": thing}


def bookmark(version: str) -> JSON:
    """Return a bookmark as kube-apiserver sends it: an object with almost no fields."""
    return event(
        "BOOKMARK",
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "creationTimestamp": None},
            "spec": {"containers": None},
            "status": {},
        },
    )
