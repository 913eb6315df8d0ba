"""HTTP to the Kubernetes API: one session, typed answers, every failure a leaf of `ClusterError`.

Answers are decoded straight into narrow structs (see `objects`). Lists are requested without compression, because
decompressing a list of pods costs more than sending it over a cluster's network.
"""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Generic

import msgspec

from orchestrator.cluster.connection import Connection, Params
from orchestrator.cluster.errors import Gone, Undecodable, error_of
from orchestrator.cluster.time_slice import TimeSlice
from orchestrator.cluster.timeouts import Limits
from orchestrator.cluster.wire import Object

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self

    import aiohttp
    from typing_extensions import TypeVar

    from orchestrator.cluster.kubeconfig import Access

    T = TypeVar("T", default=dict[str, Any])
    U = TypeVar("U")
else:
    from typing import TypeVar

    T = TypeVar("T")
    U = TypeVar("U")

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

PAGE_SIZE: Final = 500
JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Body = Mapping[str, Any] | list[Any] | msgspec.Struct

_ANY: Any = dict
_ENCODER = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """All items of a collection as of `resource_version`, from which a watch can continue."""

    items: list[T]
    resource_version: str


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object as it was sent."""

    type: str
    object: msgspec.Raw


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMetadata
    items: list[T] | None = None


_WATCH_EVENT = msgspec.json.Decoder(WatchEvent)


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type; building one takes far longer than using it."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return decoder


def encode(body: Body) -> bytes:
    """Return the JSON of a request's body. Structs of the module `objects` get their `apiVersion` and `kind`."""
    if isinstance(body, Object):
        fields = msgspec.to_builtins(body, builtin_types=(Decimal,))
        body = {"apiVersion": body.resource.api_version, "kind": body.resource.kind, **fields}
    return _ENCODER.encode(body)


class Transport:
    """A session with one API server.

        async with Transport(access) as transport:
            pod = await transport.get(PODS.path("muster-a", "train-0"), Pod)

    Every method raises subclasses of `ClusterError` and nothing else. `connection.Connection` repeats a request that
    was refused with Retry-After or with QuotaOvertaken, and a read whose connection failed. It never repeats a write
    whose connection failed.
    """

    def __init__(
        self,
        access: Access,
        user_agent: str = "muster",
        *,
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._limits = limits or Limits()
        self._connection = Connection(access, user_agent, limits=self._limits, sleep=sleep, uniform=uniform)

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.__aexit__(kind, error, trace)

    # --- reads ----------------------------------------------------------------------------------------

    async def get(self, path: str, kind: type[T] = _ANY, *, params: Params | None = None) -> T:
        """Return the object at `path`, decoded as `kind`."""
        return _decode(await self._connection.request("GET", path, params=params), kind, path)

    async def text(self, path: str, *, params: Params | None = None) -> str:
        """Return the content at `path` as text, for instance the log of a pod; invalid UTF-8 is replaced."""
        return (await self._connection.request("GET", path, params=params, accept="*/*")).decode(
            "utf-8", "replace"
        )

    async def list(
        self,
        resource_path: str,
        kind: type[T],
        *,
        params: Params | None = None,
        metadata_only: bool = False,
    ) -> Page[T]:
        """Return the whole collection, read in pages of 500.

        With `metadata_only`, the server sends only the metadata of the objects.

        If the server forgets the first pages before the last is read (410), the list starts again. The third try asks
        for everything in one page.
        """
        return await self._list(resource_path, kind, builtins.list, params, metadata_only=metadata_only)

    async def list_decoded(
        self,
        resource_path: str,
        decode: Callable[[msgspec.Raw], U],
        *,
        params: Params | None = None,
        metadata_only: bool = False,
    ) -> Page[U]:
        """Return the whole collection as `list` does. Only the results of `decode` are kept."""

        def decoded(items: Sequence[msgspec.Raw]) -> builtins.list[U]:
            return [decode(item) for item in items]

        return await self._list(resource_path, msgspec.Raw, decoded, params, metadata_only=metadata_only)

    async def _list(
        self,
        path: str,
        kind: type[T],
        convert: Callable[[Sequence[T]], builtins.list[U]],
        params: Params | None,
        *,
        metadata_only: bool,
    ) -> Page[U]:
        accept = METADATA_LIST if metadata_only else JSON
        limits = (PAGE_SIZE, PAGE_SIZE, 0)
        for attempt, limit in enumerate(limits, start=1):
            query: dict[str, str | int | bool] = {"limit": limit, **(params or {})}
            if not limit:
                del query["limit"]
            try:
                return await self._list_once(path, kind, convert, query, accept)
            except Gone:
                if attempt == len(limits):
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _list_once(
        self,
        path: str,
        kind: type[T],
        convert: Callable[[Sequence[T]], builtins.list[U]],
        params: dict[str, str | int | bool],
        accept: str,
    ) -> Page[U]:
        items: builtins.list[U] = []
        version = ""
        async with aclosing(self._pages(path, kind, params, accept)) as pages:
            async for page in pages:
                items += convert(page.items)
                version = page.resource_version
        return Page(items, version)

    def pages(self, resource_path: str, kind: type[T]) -> AsyncGenerator[Page[T], None]:
        """Yield a collection in pages of 500, so that memory holds only one page.

        Raises `Gone` if the server forgets the first page before the last is read.
        """
        return self._pages(resource_path, kind, {"limit": PAGE_SIZE}, JSON)

    async def _pages(
        self, path: str, kind: type[T], params: dict[str, str | int | bool], accept: str
    ) -> AsyncGenerator[Page[T], None]:
        while True:
            body = await self._connection.request("GET", path, params=params, accept=accept)
            page = _decode(body, _List[kind], path)  # type: ignore[valid-type]
            yield Page(page.items or [], page.metadata.resource_version)
            if not page.metadata.continue_:
                return
            params["continue"] = page.metadata.continue_
            params.pop("resourceVersion", None)
            params.pop("resourceVersionMatch", None)
            await asyncio.sleep(0)

    async def watch(
        self,
        resource_path: str,
        *,
        resource_version: str,
        params: Params | None = None,
        timeout_seconds: int,
        metadata_only: bool = False,
        on_accepted: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes after `resource_version` until the server ends the watch, after `timeout_seconds` at the
        latest.

        Bookmarks are asked for and yielded. An ERROR event is raised as the leaf of its code (`Gone`: list again). If
        nothing comes for `timeout_seconds` and a grace period, raises `Unreachable`: the connection is half open.

        `on_accepted` is called when the server has accepted the watch, before the first event. If the caller stops
        early, it must close the iterator (`contextlib.aclosing`).
        """
        query: dict[str, str | int | bool] = {
            **(params or {}),
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": resource_version,
            "timeoutSeconds": timeout_seconds,
        }
        silence = timeout_seconds + self._limits.watch_grace_seconds
        time_slice = TimeSlice()
        async with (
            aclosing(
                self._connection.stream(
                    resource_path,
                    params=query,
                    silence_seconds=silence,
                    accept=METADATA if metadata_only else JSON,
                    on_accepted=on_accepted,
                )
            ) as chunks,
            aclosing(_lines(chunks)) as lines,
        ):
            async for line in lines:
                event = _decoded(_WATCH_EVENT, line, resource_path)
                if event.type == "ERROR":
                    raise error_of(event.object, subject=f"watch {resource_path}")
                yield event
                await time_slice.end_if_over()

    def stream(
        self, path: str, *, params: Params | None = None, silence_seconds: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Return a generator of the bytes at `path` as they come, for instance a log that is followed.

        If the caller stops early, it must close the generator (`contextlib.aclosing`).
        """
        return self._connection.stream(path, params=params, silence_seconds=silence_seconds)

    def websocket(
        self,
        path: str,
        *,
        params: Sequence[tuple[str, str]],
        protocols: Sequence[str],
        heartbeat_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        """Return the WebSocket at `path`, as a context manager; see `Connection.websocket`."""
        return self._connection.websocket(
            path, params=params, protocols=protocols, heartbeat_seconds=heartbeat_seconds
        )

    # --- writes ---------------------------------------------------------------------------------------

    async def create(self, path: str, body: Body, kind: type[T] = _ANY, *, params: Params | None = None) -> T:
        """POST `body` to the collection at `path`; return the answer decoded as `kind`."""
        return _decode(
            await self._connection.request("POST", path, body=encode(body), params=params), kind, path
        )

    async def replace(
        self, path: str, body: Body, kind: type[T] = _ANY, *, params: Params | None = None
    ) -> T:
        """PUT `body`. If it has a stale `resourceVersion`, the server refuses it (`Conflict`)."""
        return _decode(
            await self._connection.request("PUT", path, body=encode(body), params=params), kind, path
        )

    async def patch(
        self,
        path: str,
        body: Body,
        kind: type[T] = _ANY,
        *,
        content_type: str = MERGE_PATCH,
        params: Params | None = None,
    ) -> T:
        """PATCH `path`; `content_type` is one of the PATCH constants of this module."""
        answer = await self._connection.request(
            "PATCH", path, body=encode(body), params=params, content_type=content_type
        )
        return _decode(answer, kind, path)

    async def apply(
        self, path: str, body: Body, kind: type[T] = _ANY, *, field_manager: str, force: bool = True
    ) -> T:
        """Create or change the object at `path` by server-side apply.

        `force` takes over fields of other field managers.
        """
        params: Params = {"fieldManager": field_manager, "force": force}
        return await self.patch(path, body, kind, content_type=APPLY_PATCH, params=params)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
        dry_run: bool = False,
        params: Params | None = None,
    ) -> None:
        """Delete the object at `path`. With `uid`, raises `Conflict` if the object has another uid.

        With `dry_run` the server checks the request and deletes nothing.

        `propagation` is Background, Foreground or Orphan.
        """
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if dry_run:
            options["dryRun"] = ["All"]  # the API server ignores the query of a request with a body
        await self._connection.request("DELETE", path, body=encode(options), params=params)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream, of any length, without empty lines and an unfinished last line."""
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            line = b"".join(parts)
            if line.strip():
                yield line
            parts = [other]


def _decode(body: bytes, kind: type[T], subject: str) -> T:
    answer: T = _decoded(_decoder(kind), body, subject)
    return answer


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, subject: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # nested too deep
        raise Undecodable(
            f"{subject}: the answer has another form than the requested one: {error}"
        ) from error
