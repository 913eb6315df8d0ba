"""A cache of one kind of object, kept current by a list and a watch.

    list every page ──> tell the differences ──> watch ──┬─ ends in time ────> watch on from the last version
      ^                                                  ├─ 429, 5xx, cut ───> wait with jitter, watch on
      ├── at once <──────────────────────────────────────┼─ expired (410), silent to its end
      └── wait with jitter <─────────────────────────────┴─ failed five times in a row, anything else

Two alternatives were examined. The official package's informer requests no bookmarks, never detects a half-open
connection and retries without waiting. kopf has a good loop, but owns the process.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec

from orchestrator.cluster.errors import (
    ClusterError,
    Gone,
    ServerFault,
    TooManyRequests,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from orchestrator.cluster.timeouts import MAX_WATCH_SECONDS, MIN_WATCH_SECONDS
from orchestrator.cluster.wire import Metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from orchestrator.cluster.connection import Params
    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.transport import Transport, WatchEvent

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS: Final = 0.5
MAX_DELAY_SECONDS: Final = 30.0
FAILURES_BEFORE_LIST: Final = 5
OBJECTS_PER_YIELD: Final = 256

_WATCH_ON = (Unreachable, TooManyRequests, ServerFault, Unauthorized, Undecodable)


class HasMetadata(Protocol):
    """Any object of the API."""

    @property
    def metadata(self) -> Metadata:
        """Name, uid and version."""


T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One difference. `previous` is None for an addition; for a deletion, `object` is the last state."""

    type: Literal["added", "modified", "deleted"]
    object: T
    previous: T | None = None


class State(enum.Enum):
    """The state of a reflector."""

    UNSYNCED = "unsynced"
    LISTING = "listing"
    WATCHING = "watching"


@dataclass(slots=True)
class Counters:
    """The counters of a reflector since its start; for metrics and tests."""

    lists: int = 0
    relists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    unknown_events: int = 0
    decode_errors: int = 0
    failures: int = 0


class _Envelope(msgspec.Struct):
    """The metadata of an object, which can be decoded even if the rest cannot. A bookmark has nothing else."""

    metadata: Metadata = Metadata()


def _ignore(_change: Change[Any]) -> None:
    pass


class Reflector(Generic[T]):
    """A cache of one kind of object.

    `objects` maps uid to object. It is always the same mapping, which the reflector changes between awaits. `on_change`
    gets each difference after it was applied to the cache. An error from `on_change` ends `run`. After a list, objects
    with an unchanged resourceVersion are not reported. A reused name is reported as a deletion and an addition.

    An object that cannot be decoded is counted and logged, and its previous state is kept. If the state were dropped, a
    pod would seem to free its GPUs because of an unknown field. `undecodable` has, by uid, the metadata of these
    objects and the reason.

    `beginning`, if given, replaces the first list. It yields another current cache of the same `request`, whose objects
    and version this cache takes over. If it yields None, this cache lists.

    A cache that has taken over objects counts as synced when the server has accepted the watch from their version. So
    the server checks that the user may see all of the objects.

    `problem` is the last failure, until the server answers again. While it is set, the cache may be behind.

    With `metadata_only` the server sends only the metadata of the objects, which is enough for their age. `decode` is
    used instead of the decoder of `kind`, and raises msgspec.DecodeError. `random` gives a float in [0, 1) for jitter
    and watch lengths, `clock` monotonic seconds.
    """

    def __init__(
        self,
        transport: Transport,
        resource: Resource,
        kind: type[T],
        *,
        namespace: str | None = None,
        params: Params | None = None,
        metadata_only: bool = False,
        decode: Callable[[msgspec.Raw], T] | None = None,
        beginning: Callable[[Reflector[T]], AbstractAsyncContextManager[Reflector[T] | None]] | None = None,
        on_change: Callable[[Change[T]], None] = _ignore,
        random: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self.kind = resource.kind
        self._path = resource.path(namespace)
        self._decode_object = decode or msgspec.json.Decoder(kind).decode
        self._envelope = msgspec.json.Decoder(_Envelope)
        self._params = dict(params or {})
        self._metadata_only = metadata_only
        self._beginning = beginning
        self._on_change = on_change
        self._random = random
        self._clock = clock
        self._sleep = sleep
        self._objects: dict[str, T] = {}
        self._resource_version = ""
        self._failures = 0
        self._synced = asyncio.Event()
        self._undecodable: dict[str, tuple[Metadata, str]] = {}
        self.objects: Mapping[str, T] = MappingProxyType(self._objects)
        self.undecodable: Mapping[str, tuple[Metadata, str]] = MappingProxyType(self._undecodable)
        self.counters = Counters()
        self.state = State.UNSYNCED
        self.last_heard: float | None = None
        self.problem: ClusterError | None = None

    @property
    def request(self) -> tuple[object, ...]:
        """The listed and watched collection: equal for caches that get the same objects."""
        return self._path, tuple(sorted(self._params.items())), self._metadata_only

    @property
    def is_synced(self) -> bool:
        """Whether the cache has the server's state."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """The version up to which the cache is current."""
        return self._resource_version

    async def synced(self) -> None:
        """Wait until the cache has the server's state."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep the cache current until cancelled. Failures of the API are logged, and the request is repeated."""
        while True:
            try:
                await self._begin()
                await self._watch_on()
            except ClusterError as error:
                # Wait, unless the version has expired: then a new list helps immediately.
                expired = isinstance(error, Gone) and self.state is State.WATCHING and self._failures == 0
                await self._failed(error, wait=not expired)

    async def _begin(self) -> None:
        """Fill the cache by a list; the first time from another cache, if there is one."""
        beginning, self._beginning = self._beginning, None
        if beginning is None:
            await self._list()
            return
        async with beginning(self) as other:
            if other is None:
                await self._list()
            else:
                self._resource_version = other.resource_version
                self._undecodable.update(other.undecodable)
                await self._tell_all(self._swapped(dict(other.objects)))

    async def _tell_all(self, changes: list[Change[T]]) -> None:
        for number, change in enumerate(changes, start=1):
            self._on_change(change)
            # When the cache is synced, do not yield: other tasks must not see objects that are not yet reported.
            if not self.is_synced and number % OBJECTS_PER_YIELD == 0:
                await asyncio.sleep(0)

    async def _watch_on(self) -> None:
        """Watch repeatedly from the last version seen. Raise when a new list is necessary."""
        in_a_row = 0
        while True:
            try:
                await self._watch()
            except _WATCH_ON as error:
                in_a_row = in_a_row + 1 if self._failures else 1
                if in_a_row >= FAILURES_BEFORE_LIST:
                    raise
                await self._failed(error)

    async def _list(self) -> None:
        self.state = State.LISTING
        self.counters.lists += 1
        self.counters.relists += self.is_synced
        undecodable: dict[str, tuple[Metadata, str]] = {}
        page = await self._transport.list_decoded(
            self._path,
            lambda raw: self._decode(raw, undecodable),
            params=self._params,
            metadata_only=self._metadata_only,
        )
        objects: dict[str, T] = {}
        self._undecodable.clear()
        for number, decoded in enumerate(page.items, start=1):
            if isinstance(decoded, Metadata):
                self._undecodable[decoded.uid] = undecodable[decoded.uid]
                if decoded.uid in self._objects:
                    objects[decoded.uid] = self._objects[decoded.uid]
            else:
                objects[decoded.metadata.uid] = decoded
            if number % OBJECTS_PER_YIELD == 0:
                await asyncio.sleep(0)
        changes = self._swapped(objects)
        self._resource_version = page.resource_version
        self.last_heard = self._clock()
        self.problem = None
        await self._tell_all(changes)
        self._synced.set()

    def _swapped(self, objects: dict[str, T]) -> list[Change[T]]:
        """Make `objects` the content of the cache; return the differences, deletions first."""
        before = dict(self._objects)
        changes = [Change("deleted", old, old) for uid, old in before.items() if uid not in objects]
        self._objects.clear()
        for uid, new in objects.items():
            old = before.get(uid)
            if old is not None and old.metadata.resource_version == new.metadata.resource_version:
                self._objects[uid] = old
                continue
            self._objects[uid] = new
            changes.append(Change("added", new) if old is None else Change("modified", new, old))
        return changes

    async def _watch(self) -> None:
        self.state = State.WATCHING
        self.counters.watches += 1
        span = MAX_WATCH_SECONDS - MIN_WATCH_SECONDS
        started = self._clock()
        heard = False
        watch = self._transport.watch(
            self._path,
            resource_version=self._resource_version,
            params=self._params,
            metadata_only=self._metadata_only,
            timeout_seconds=MIN_WATCH_SECONDS + int(span * self._random()),
            on_accepted=self._synced.set,
        )
        async with aclosing(watch) as events:
            async for event in events:
                self._take(event)
                self._failures = 0
                self.problem = None
                heard = True
        if not heard and self._clock() - started < 1.0:
            raise Unreachable(f"watch {self._path}: the server ended it at once, without an event")
        if not heard:
            # After etcd was restored, the version can be in the future. Then the watch brings nothing and ends without
            # an error.
            raise Gone(f"watch {self._path}: it brought nothing in all its time, not even a bookmark")

    def _take(self, event: WatchEvent) -> None:
        self.last_heard = self._clock()
        if event.type == "BOOKMARK":
            self.counters.bookmarks += 1
            self._advance(self._metadata(event.object))
            return
        if event.type not in {"ADDED", "MODIFIED", "DELETED"}:
            self.counters.unknown_events += 1
            log.warning("watch %s: an event of type %r was ignored", self._path, event.type)
            return
        self.counters.events += 1
        decoded = self._decode(event.object, self._undecodable)
        metadata = decoded if isinstance(decoded, Metadata) else decoded.metadata
        self._advance(metadata)
        old = self._objects.get(metadata.uid)
        if event.type == "DELETED":
            self._undecodable.pop(metadata.uid, None)
            if old is not None:
                del self._objects[metadata.uid]
                self._on_change(Change("deleted", old if isinstance(decoded, Metadata) else decoded, old))
        elif not isinstance(decoded, Metadata):
            self._undecodable.pop(metadata.uid, None)
            if old is None:
                self._objects[metadata.uid] = decoded
                self._on_change(Change("added", decoded))
            elif old.metadata.resource_version != metadata.resource_version:
                self._objects[metadata.uid] = decoded
                self._on_change(Change("modified", decoded, old))

    def _advance(self, metadata: Metadata) -> None:
        if metadata.resource_version:
            self._resource_version = metadata.resource_version

    def _decode(self, raw: msgspec.Raw, undecodable: dict[str, tuple[Metadata, str]]) -> T | Metadata:
        """Return the object. If it cannot be decoded, return its metadata and put the reason into `undecodable`."""
        try:
            return self._decode_object(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            self.counters.decode_errors += 1
            metadata = self._metadata(raw)
            log.warning(
                "%s: %s/%s cannot be read and is kept as it was: %s",
                self._path,
                metadata.namespace,
                metadata.name,
                error,
            )
            undecodable[metadata.uid] = (metadata, str(error))
            return metadata

    def _metadata(self, raw: msgspec.Raw) -> Metadata:
        try:
            return self._envelope.decode(raw).metadata
        except (msgspec.DecodeError, RecursionError) as error:
            raise Undecodable(
                f"{self._path}: the API server sent something else than an object: {error}"
            ) from error

    async def _failed(self, error: ClusterError, *, wait: bool = True) -> None:
        self.counters.failures += 1
        if not wait:
            log.info("%s: %s; listing again", self._path, error)
            self._failures += 1
            return
        longest = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(self._failures, 16))
        delay = max(longest * (0.5 + self._random() / 2), error.retry_after_seconds or 0.0)
        self._failures += 1
        self.problem = error
        log.warning("%s: %s; trying again in %.1f s", self._path, error, delay)
        await self._sleep(delay)
