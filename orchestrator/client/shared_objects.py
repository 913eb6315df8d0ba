"""Objects that several people's caches have in common, kept once and listed once.

What somebody sees is what the API server sent them, or would have sent them: a cache begins with the objects of another
one of the very same request, and has them when the API server has accepted the watch that goes on from there, with the
person's own token. Who may watch may see all objects of the request. An object from a list or a watch only takes the
place of one that is equal to it in every field.
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

_SPARE: Final = 1000
"""So many objects may be kept that no cache has any more, beside twice as many as are in use."""
MAX_TURN_SECONDS: Final = 3.0
"""So long a list is waited for that somebody else reads; whose server keeps them waiting keeps nobody else waiting."""


class SharedObjects:
    """The newest of each object that the caches were sent; those that no cache has any more go now and then.

    `texts` are those that the objects have in common; none are kept when the last object goes.
    """

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], _Object] = {}
        self.texts = EqualTexts()
        self._caches: dict[str, list[Reflector[Any]]] = {}
        self._sweep_at = _SPARE
        self._turns: WeakValueDictionary[tuple[object, ...], asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._objects)

    @contextmanager
    def used_by(self, caches: Sequence[Reflector[Any]]) -> Iterator[None]:
        """Keep what is in these caches until the end."""
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
        """Give another cache of the same request that is current. None: there is none, and this one is to list.

        Meanwhile nobody else lists the same, or not before `MAX_TURN_SECONDS`.
        """
        if (other := self._current(cache)) is not None:
            yield other
            return
        turn = self._turns.setdefault(cache.request, asyncio.Lock())
        try:
            async with asyncio.timeout(MAX_TURN_SECONDS):
                await turn.acquire()
        except TimeoutError:
            yield self._current(cache)
            return
        try:
            yield self._current(cache)
        finally:
            turn.release()

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
        """Drop what no cache has, unless one is being filled for the first time: nobody knows what it will have."""
        if all(cache.is_synced for caches in self._caches.values() for cache in caches):
            self._objects = {
                (kind, uid): item
                for (kind, uid), item in self._objects.items()
                if any(cache.objects.get(uid) is item for cache in self._caches.get(kind, ()))
            }
        if not self._objects:
            self.texts.clear()
        self._sweep_at = 2 * len(self._objects) + _SPARE
