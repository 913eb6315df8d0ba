"""Shares equal objects between the caches of several people, so that each is stored once and listed once.

A user gets only objects that the API server would send to this user: the right to watch a collection includes all its
objects.

A new cache begins with the objects of another cache of the same request, and watches from that cache's version with the
person's own token. It shows the objects only when the API server has accepted this watch. A received object is replaced
by a stored one only if both are equal in every field.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec

from orchestrator.client.equal_texts import EqualTexts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from orchestrator.cluster.reflector import Reflector
    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.wire import Metadata


class _Object(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=_Object)

_SWEEP_MARGIN: Final = 1000
"""Unused objects are removed if the number of stored objects exceeds twice the number in use by this margin."""
MAX_LOCK_SECONDS: Final = 3.0
"""Maximum time to wait while another person's cache lists the same objects."""


class SharedObjects:
    """The newest version of each object that the caches received. Objects that no cache has are removed from time to
    time.

    `texts` are the shared texts of the objects; they are dropped with the last object.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], _Object] = {}
        self.texts = EqualTexts()
        self._caches: dict[str, list[Reflector[Any]]] = {}
        self._sweep_at = _SWEEP_MARGIN
        self._locks: WeakValueDictionary[tuple[object, ...], asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._objects)

    @contextmanager
    def used_by(self, caches: Sequence[Reflector[Any]]) -> Iterator[None]:
        """Keep the objects of these caches until the end of the context."""
        for cache in caches:
            self._caches.setdefault(cache.kind, []).append(cache)
        try:
            yield
        finally:
            for cache in caches:
                self._caches[cache.kind].remove(cache)
            self._sweep()

    @asynccontextmanager
    async def beginning(self, cache: Reflector[Any]) -> AsyncIterator[Reflector[Any] | None]:
        """Yield another, current cache of the same request. None without such a cache: then the caller must list.

        While the caller lists, others with the same request wait, for at most `MAX_LOCK_SECONDS`.
        """
        if (other := self._current(cache)) is not None:
            yield other
            return
        lock = self._locks.setdefault(cache.request, asyncio.Lock())
        try:
            async with asyncio.timeout(MAX_LOCK_SECONDS):
                await lock.acquire()
        except TimeoutError:
            yield self._current(cache)
            return
        try:
            yield self._current(cache)
        finally:
            lock.release()

    def _current(self, cache: Reflector[Any]) -> Reflector[Any] | None:
        return next(
            (
                other
                for other in self._caches.get(cache.kind, ())
                if other.request == cache.request and other.is_synced and other.problem is None
            ),
            None,
        )

    def decoder(self, resource: Resource, kind: type[T]) -> Callable[[msgspec.Raw], T]:
        """Return a function that decodes an object of the resource.

        If an equal object is known, the function returns the known object.

        `resource` is needed in addition to `kind`, because one kind can be read in several API versions, such as
        ResourceClaim.
        """
        decode = msgspec.json.Decoder(kind).decode
        name = resource.kind

        def shared(raw: msgspec.Raw) -> T:
            decoded = decode(raw)
            key = name, decoded.metadata.uid
            known = self._objects.get(key)
            if isinstance(known, kind) and known == decoded:
                return known
            self.texts.share_in(decoded)
            self._objects[key] = decoded
            if len(self._objects) > self._sweep_at:
                self._sweep()
            return decoded

        return shared

    def _sweep(self) -> None:
        """Drop the objects that no cache has. While a cache is being filled for the first time, drop nothing."""
        if all(cache.is_synced for caches in self._caches.values() for cache in caches):
            self._objects = {
                (kind, uid): item
                for (kind, uid), item in self._objects.items()
                if any(cache.objects.get(uid) is item for cache in self._caches.get(kind, ()))
            }
        if not self._objects:
            self.texts.clear()
        self._sweep_at = 2 * len(self._objects) + _SWEEP_MARGIN
