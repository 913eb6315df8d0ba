"""Stores equal strings of many objects only once: namespaces, images, names of conditions, timestamps.

A decoder creates a new string for every occurrence. In the pods and jobs of `musterbench web`, strings take nearly half
of the memory, and only an eighth of them are unique.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

MAX_TEXTS: Final = 20_000
"""Maximum number of different texts.

If there are more, all are dropped: most are names and uids, which occur once or twice.
"""
MAX_LENGTH: Final = 200
"""Maximum length of a shared text. Long texts are annotations of users; sharing would keep every version of them."""
MAX_DEPTH: Final = 16
"""Maximum nesting depth at which texts are shared. Jobs of `muster submit` have eight levels, or some more with
affinities.
"""


class EqualTexts:
    """The texts that were seen so far, each stored once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def share_in(self, item: Any) -> None:
        """Replace each text of a decoded struct by the equal text that is already known.

        This includes frozen objects and shared defaults: no visible value changes.
        """
        if len(self._texts) > MAX_TEXTS:
            self.clear()
        self._share_in_fields(item, MAX_DEPTH)

    def clear(self) -> None:
        """Forget all texts."""
        self._texts.clear()

    def _share_in_fields(self, item: Any, depth: int) -> None:
        for name in item.__struct_fields__:
            value = getattr(item, name)
            shared = self._shared(value, depth)
            if shared is not value:
                force_setattr(item, name, shared)

    def _shared(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self._texts.setdefault(value, value) if len(value) <= MAX_LENGTH else value
        if not value or depth == 0:
            return value
        if kind is dict:
            for key, entry in value.items():
                value[key] = self._shared(entry, depth - 1)  # adds no key, so the iteration may continue
        elif kind is tuple:
            return tuple([self._shared(entry, depth - 1) for entry in value])
        elif kind is list:
            value[:] = [self._shared(entry, depth - 1) for entry in value]
        elif isinstance(value, msgspec.Struct):
            self._share_in_fields(value, depth - 1)
        return value
