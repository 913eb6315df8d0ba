"""Objects that several people's caches have in common, kept once and listed once.

A person sees exactly the objects that the API server sent them, or would have sent them. Users with the right to
watch may see all objects of the request.

A cache begins with the objects of another one of the same request. It gets them when the API server has accepted the
watch from there on, with the person's own token. An object of a list or watch replaces only one that is equal in
every field.
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
"""Number of objects without a cache that may be kept, in addition to twice the number in use."""
MAX_LOCK_SECONDS: Final = 3.0
"""Maximum time to wait for a list that another person reads; a slow server delays no other person for longer."""


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
        """Keep the objects of these caches until the end."""
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
        """Give another cache of the same request that is current. None: no other cache has them, and the caller lists.

        In the meantime no other person lists the same, or not before `MAX_LOCK_SECONDS`.
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
        """Return a function that decodes an object of the resource, and returns the one that is there if it is equal.

        The kind alone does not name the resource: slices and claims are read in whichever version the server has.
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
        """Drop objects without a cache, unless one is being filled for the first time: its content is unknown."""
        if all(cache.is_synced for caches in self._caches.values() for cache in caches):
            self._objects = {
                (kind, uid): item
                for (kind, uid), item in self._objects.items()
                if any(cache.objects.get(uid) is item for cache in self._caches.get(kind, ()))
            }
        if not self._objects:
            self.texts.clear()
        self._sweep_at = 2 * len(self._objects) + _SWEEP_MARGIN
