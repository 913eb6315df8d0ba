"""Requests to one API server: authentication, time-outs, repeats, and failures as subclasses of `ClusterError`.

aiohttp is imported at its first use: the import takes a fifth of a second, too long for help and completion.
"""

from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from orchestrator.cluster.errors import (
    ClusterError,
    QuotaOvertaken,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    error_of,
)
from orchestrator.cluster.timeouts import CLOSE_SECONDS, KEEP_ALIVE_SECONDS, Limits

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    import aiohttp

    from orchestrator.cluster.kubeconfig import Access

Params = Mapping[str, str | int | bool]

_JSON: Final = "application/json"
_MAX_MESSAGE_BYTES: Final = 16 << 20
_POLL_SECONDS: Final = 0.001

READ_BUFFER_BYTES: Final = 4 << 20
"""aiohttp reads an answer ahead by up to twice this size, about 2,000 pods.

The API server ends a watch that is read late.
"""


class Connection:
    """A session with one API server, as an async context manager.

    A request that the server refused before any action (429 or 503 with Retry-After) is repeated, up to
    `limits.attempts` tries. So is a read whose connection failed. A write is not: the server may have carried it out.
    If the server refuses the token (401), and the token has changed since, the request is repeated once with the new
    token.
    """

    def __init__(
        self,
        access: Access,
        user_agent: str,
        *,
        limits: Limits,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._access = access
        self._base = access.server.rstrip("/")
        self._user_agent = user_agent
        self._limits = limits
        self._sleep = sleep
        self._uniform = uniform
        self._slots = asyncio.Semaphore(limits.connections)
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._access.ssl if self._access.ssl is not None else True,
                limit=0,
                limit_per_host=0,
                socket_factory=self._open_socket,
            ),
            headers=[
                ("Accept-Encoding", "identity"),
                ("User-Agent", self._user_agent),
                *self._access.impersonation,
            ],
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await self._cut_connections()

    def _open_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a new socket for the address. `_cut_connections` closes it if it is still open."""
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets.add(opened)
        return opened

    async def _cut_connections(self) -> None:
        """Close the remaining connections of aiohttp, and wait until the event loop has released them.

        If a request is cancelled before its answer comes, TLS waits for the server before it closes the connection. So
        the connection would outlive the event loop.
        """
        for opened in self._sockets:
            with suppress(OSError):  # closed, or never connected
                opened.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while any(opened.fileno() != -1 for opened in self._sockets):  # noqa: ASYNC110  (asyncio has no event for it)
                    await asyncio.sleep(_POLL_SECONDS)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Params | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> bytes:
        """Return the body of the answer."""
        import aiohttp

        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(
            total=self._limits.request_seconds, sock_connect=self._limits.connect_seconds
        )
        token = await self._token()
        for attempt in range(1, self._limits.attempts + 1):
            try:
                async with (
                    self._slots,
                    self._answer(
                        method,
                        path,
                        params=params,
                        headers=headers,
                        timeout=timeout,
                        token=token,
                        body=body,
                    ) as answer,
                ):
                    with _unreachable(f"{method} {path}"):
                        return await answer.read()
            except ClusterError as error:
                old = token
                if isinstance(error, Unauthorized):
                    token = await self._token()
                delay = self._delay(error, attempt, is_read=method == "GET", token_changed=token != old)
                if delay is None or attempt == self._limits.attempts:
                    raise
            await self._sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    def _delay(
        self, error: ClusterError, attempt: int, *, is_read: bool, token_changed: bool
    ) -> float | None:
        """Return the seconds to wait before the request is repeated, or None if it must not be repeated."""
        if isinstance(error, Unauthorized) and token_changed:
            return 0.0
        if isinstance(error, TooManyRequests) or error.status == 503:
            retry_after = error.retry_after_seconds
            if retry_after is None or retry_after > self._limits.max_retry_after_seconds:
                return None
            return retry_after + self._uniform(0, self._limits.backoff_seconds)
        if isinstance(error, QuotaOvertaken) or (isinstance(error, Unreachable) and is_read):
            return self._uniform(0.5, 1.0) * self._limits.backoff_seconds * 2.0 ** (attempt - 1)
        return None

    async def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        silence_seconds: float | None = None,
        accept: str = "*/*",
        on_accepted: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the answer as they come. Raises Unreachable if no byte comes for `silence_seconds`.

        `on_accepted` is called when the server has accepted the request, before the first byte of the answer's body.
        """
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._limits.connect_seconds, sock_read=silence_seconds
        )
        async with self._answer(
            "GET",
            path,
            params=params,
            headers={"Accept": accept},
            timeout=timeout,
            token=await self._token(),
            body=None,
        ) as answer:
            if answer.connection is not None and answer.connection.transport is not None:
                _keep_alive(answer.connection.transport.get_extra_info("socket"))
            if on_accepted is not None:
                on_accepted()
            chunks = aiter(answer.content.iter_any())
            while True:
                with _unreachable(f"GET {path}"):
                    chunk = await anext(chunks, b"")
                if not chunk:
                    return
                yield chunk

    @asynccontextmanager
    async def websocket(
        self,
        path: str,
        *,
        params: Sequence[tuple[str, str]],
        protocols: Sequence[str],
        heartbeat_seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Upgrade to a WebSocket that speaks one of `protocols`.

        If the server refuses, raises the leaf for its `Status`.

        If the server is silent for `heartbeat_seconds`, it gets a ping. If it does not answer within half of that time,
        the socket fails.
        """
        import aiohttp

        if self._session is None:
            raise RuntimeError("the transport is closed; use it within `async with`")
        token = await self._token()
        async with aiohttp.ClientSession(
            connector=self._session.connector,
            connector_owner=False,
            headers=self._session.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_seconds),
            middlewares=(_refused_upgrade,),
        ) as session:
            with _unreachable(f"GET {path}"):
                async with asyncio.timeout(self._limits.request_seconds):
                    upgraded = await session.ws_connect(
                        self._base + path,
                        params=params,
                        protocols=protocols,
                        headers={"Authorization": f"Bearer {token}"} if token else {},
                        heartbeat=heartbeat_seconds,
                        max_msg_size=_MAX_MESSAGE_BYTES,
                        server_hostname=self._access.tls_server_name,
                        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    )
            try:
                if upgraded.protocol is None:
                    raise ClusterError(
                        f"GET {path}: the server speaks none of {', '.join(protocols)}; it is too old for muster"
                    )
                _keep_alive(upgraded.get_extra_info("socket"))
                yield upgraded
            finally:
                await upgraded.close()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Params | None,
        headers: dict[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  (a value for aiohttp, which enforces it)
        token: str | None,
        body: bytes | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield its successful answer, whose body is still to be read."""
        if self._session is None:
            raise RuntimeError("the transport is closed; use it within `async with`")
        if token:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        with _unreachable(f"{method} {self._base}{path}"):
            answer = await self._session.request(
                method,
                self._base + path,
                params=_query(params),
                headers=headers,
                data=body,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self._access.tls_server_name,
            )
        try:
            if not 200 <= answer.status < 300:
                with _unreachable(f"{method} {path}"):
                    text = await answer.read()
                retry_after = answer.headers.get("Retry-After", "")
                raise error_of(
                    text, status=answer.status, retry_after=retry_after, subject=f"{method} {path}"
                )
            yield answer
        finally:
            _hang_up(answer)

    async def _token(self) -> str | None:
        if self._access.token_blocks:
            return await asyncio.to_thread(self._access.token)
        return self._access.token()


async def _refused_upgrade(
    request: aiohttp.ClientRequest, send: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
) -> aiohttp.ClientResponse:
    """Send the request. If the server does not upgrade, raise an error with its message, which aiohttp would drop."""
    answer = await send(request)
    if answer.status == 101:
        return answer
    text = await answer.read()
    subject = f"{request.method} {request.url.path}"
    if 200 <= answer.status < 300:
        raise ClusterError(f"{subject}: the server, or a proxy before it, does not upgrade to a WebSocket")
    raise error_of(
        text, status=answer.status, retry_after=answer.headers.get("Retry-After", ""), subject=subject
    )


def _hang_up(answer: aiohttp.ClientResponse) -> None:
    """Give the connection back to the pool. If the answer was not read to its end, abort the connection.

    A close by TLS would wait for the server and outlive the event loop.
    """
    connection = answer.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    answer.close()


def _keep_alive(connection: socket.socket | None) -> None:
    """Enable TCP keep-alive, so that the kernel detects a lost peer: a program may be silent for hours."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)


def _query(params: Params | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (params or {}).items()
    }


@contextmanager
def _unreachable(subject: str) -> Iterator[None]:
    """Turn the failures of the HTTP library, of TLS and of the network into `Unreachable`."""
    import aiohttp

    try:
        yield
    except TimeoutError as error:
        raise Unreachable(
            f"{subject}: no answer in time; is the API server up and not overloaded?"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise Unreachable(f"{subject}: {cause}; check the server and the CA in the kubeconfig") from error
