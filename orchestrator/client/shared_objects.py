"""Objects that several people's caches have in common, kept once.

What somebody sees is what the API server sent them on their own watches. An object only takes the place of one that is
equal to it in every field, so nobody gets anything of another's; what is saved is memory.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.cluster.reflector import Reflector
    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.wire import Metadata


class _Object(Protocol):
    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=_Object)

_SPARE: Final = 1000
"""So many objects may be kept that no cache has any more, beside twice as many as are in use."""


class SharedObjects:
    """The newest of each object that the caches were sent; those that no cache has any more go now and then."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], _Object] = {}
        self._caches: dict[str, list[Reflector[Any]]] = {}
        self._sweep_at = _SPARE

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
        self._sweep_at = 2 * len(self._objects) + _SPARE
