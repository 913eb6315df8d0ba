"""Records the object that the process handles in a file, so that after a crash the next start finds the object that
caused it.

    handle an object ──> its bytes are in the file ──> handled: the file is marked empty
                   └──> the process ends: its next start finds the object

The file is memory-mapped, so a note costs a copy of the object's bytes and no system call. The kernel owns the pages,
so the note survives SIGKILL, an OOM kill and a segmentation fault.
"""

import logging
import mmap
import os
import struct
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from orchestrator.cluster.wire import Metadata, Wire

logger = logging.getLogger(__name__)

_HEADER: Final = struct.Struct("<Q60s")
_MAX_BYTES: Final = 4 << 20
"""More than the API server accepts for one object."""


class Identity(Wire, frozen=True):
    """The kind and the name of an object."""

    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: str, metadata: Metadata) -> Self:
        """Return the identity of the object with the metadata."""
        return cls(kind, metadata.namespace, metadata.name, metadata.uid)

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {path}"


class Envelope(Wire, frozen=True):
    """The metadata of an object. It can be read even if the rest of the object cannot."""

    metadata: Metadata = Metadata()


class LastObject:
    """Notes the handled object in `file`; without a file it does nothing.

    `found` is the object that the previous process was handling when it ended; None if there was none.

    Notes can be nested. The outer object counts.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.found: Identity | None = None
        self._depth = 0
        self._map: mmap.mmap | None = None
        if file is not None:
            try:
                self._open(file)
            except OSError as error:
                logger.warning("%s: the object that ends the process will not be known: %s", file, error)

    def enter(self, kind: str, content: msgspec.Raw | Metadata) -> None:
        """Note an object by its bytes or its metadata."""
        self._depth += 1
        if self._map is None or self._depth > 1:
            return
        noted: Any = _encoded(content) if isinstance(content, Metadata) else content
        size = min(len(view := memoryview(noted)), _MAX_BYTES)
        self._map[_HEADER.size : _HEADER.size + size] = view[:size]
        _HEADER.pack_into(self._map, 0, size, kind.encode()[:60])

    def leave(self) -> None:
        """Note that the object was handled."""
        self._depth -= 1
        if self._map is not None and not self._depth:
            self._map[:8] = bytes(8)

    def _open(self, file: Path) -> None:
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(number, _HEADER.size + _MAX_BYTES)
            self._map = mmap.mmap(number, 0)
        finally:
            os.close(number)
        size, kind = _HEADER.unpack_from(self._map)
        if size:
            content = self._map[_HEADER.size : _HEADER.size + min(size, _MAX_BYTES)]
            self.found = _identity(kind.rstrip(b"\0").decode(errors="replace"), content)
            self._map[:8] = bytes(8)


def _encoded(metadata: Metadata) -> bytes:
    # names and uids need no JSON escapes: the API server restricts their characters
    return (
        f'{{"metadata":{{"namespace":"{metadata.namespace}","name":"{metadata.name}","uid":"{metadata.uid}"}}}}'
    ).encode()


def _identity(kind: str, content: bytes) -> Identity | None:
    try:
        metadata = msgspec.json.decode(content, type=Envelope).metadata
    except (msgspec.DecodeError, RecursionError) as error:
        logger.warning("the process before ended with an object of kind %s without a name: %s", kind, error)
        return None
    return Identity.of(kind, metadata)
