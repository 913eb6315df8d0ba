"""Settings that keep the memory of hundreds of connections small.

Each person has about ten TLS connections to the API server: fifty people have five hundred.
"""

import ctypes
from asyncio import sslproto
from contextlib import suppress
from typing import Final

TLS_BUFFER_BYTES: Final = 32 << 10
"""Read buffer of each connection. asyncio's default is 256 KiB, and all of it is used from the first byte."""
LARGE_BLOCK_BYTES: Final = 128 << 10
FREE_END_BYTES: Final = 64 << 10
"""A freed block of 128 KiB, and free space of 64 KiB at the heap's end, return to the system at once.

glibc starts with similar values, but raises them with the blocks that it sees. Then it keeps unused lists and answers
between blocks in use.
"""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""glibc's numbers for them, in malloc.h; of the C libraries of Linux musl has no such call, and needs none."""


def use_little() -> None:
    """Set this for the process, for connections and blocks that are yet to come."""
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    with suppress(AttributeError, OSError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        allocator.mallopt(_M_TRIM_THRESHOLD, FREE_END_BYTES)
        allocator.mallopt(_M_ARENA_MAX, 1)  # or every thread keeps free blocks of its own
