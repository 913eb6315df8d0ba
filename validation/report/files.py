"""Reads files of an untrusted directory: only plain files of bounded size. A FIFO cannot block it."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from validation.errors import ReportError

MAX_BYTES: Final = 1 << 30
"""Maximum size of one file, and of all files together."""
MAX_FILES: Final = 10_000
MAX_DEPTH: Final = 8
"""Maximum depth of directories."""
_CHUNK_BYTES: Final = 1 << 20
_DAMAGE: Final = (
    LookupError,
    ValueError,
    ArithmeticError,
    TypeError,
    AttributeError,
    RecursionError,
    MemoryError,
)
"""Errors of the code if a record has another form than muster writes."""


@contextlib.contextmanager
def untrusted(name: str) -> Iterator[None]:
    """Replace every error that a damaged or forged record causes by a ReportError of one line."""
    try:
        yield
    except _DAMAGE as error:
        raise ReportError(
            f"{name}: is damaged, and cannot be judged: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def opened(path: Path, limit_bytes: int = MAX_BYTES) -> Iterator[BinaryIO]:
    """Open a plain file of at most `limit_bytes` bytes. A link, a device or a FIFO is refused. Raises ReportError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if path.is_symlink():
            reason = "it is a link"
        raise ReportError(f"{path}: cannot be read: {reason}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)  # a directory cannot become a file object
        raise ReportError(f"{path}: cannot be read: it is no plain file")
    with os.fdopen(handle, "rb") as file:
        if status.st_size > limit_bytes:
            raise ReportError(f"{path}: has {status.st_size} bytes; at most {limit_bytes} are read")
        yield file


def read(path: Path, limit_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a plain file of at most `limit_bytes` bytes. Raises ReportError."""
    with opened(path, limit_bytes) as file:
        return _bounded_read(file, limit_bytes, path)


def digest(path: Path) -> str:
    """Return the SHA-256 of a plain file. Raises ReportError."""
    with opened(path) as file:
        sha256, total = hashlib.sha256(), 0
        try:
            while chunk := file.read(_CHUNK_BYTES):
                sha256.update(chunk)
                total += len(chunk)
                if total > MAX_BYTES:
                    raise ReportError(f"{path}: grows while it is read")
        except OSError as error:
            raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
        return sha256.hexdigest()


def listed(directory: Path) -> tuple[list[str], list[str]]:
    """Return the plain files below the directory, and all entries that are neither plain files nor directories, both
    sorted.

    The names are relative to the directory. Raises ReportError if the files are too many, too large or too deep.
    """
    plain: list[str] = []
    others: list[str] = []
    total = 0
    for name, entry in _walk(directory, "", 0):
        if not entry.is_file(follow_symlinks=False):
            others.append(name)
        else:
            plain.append(name)
            total += entry.stat(follow_symlinks=False).st_size
        if len(plain) + len(others) > MAX_FILES:
            raise ReportError(f"{directory}: has more than {MAX_FILES} files, so it is no report")
        if total > MAX_BYTES:
            raise ReportError(f"{directory}: {name}: with it the files have more than {MAX_BYTES} bytes")
    return sorted(plain), sorted(others)


def _walk(directory: Path, prefix: str, depth: int) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    if depth > MAX_DEPTH:
        raise ReportError(f"{directory}: has more than {MAX_DEPTH} directories in each other")
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(directory / entry.name, f"{name}/", depth + 1)
                else:
                    yield name, entry
    except OSError as error:
        raise ReportError(f"{directory}: cannot be read: {error.strerror}") from error


def _bounded_read(file: BinaryIO, limit_bytes: int, path: Path) -> bytes:
    try:
        content = file.read(limit_bytes + 1)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > limit_bytes:
        raise ReportError(f"{path}: grows while it is read")
    return content
