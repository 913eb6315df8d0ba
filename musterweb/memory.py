"""Settings that keep the memory of hundreds of connections small.

Each person has about ten TLS connections to the API server: fifty people have five hundred.
"""

import ctypes
from asyncio import sslproto
from contextlib import suppress
from typing import Final

TLS_BUFFER_BYTES: Final = 32 << 10
"""Read buffer of each connection. asyncio's default is 256 KiB, which each connection allocates with its first byte."""
LARGE_BLOCK_BYTES: Final = 128 << 10
FREE_END_BYTES: Final = 64 << 10
"""With these two values, glibc gives freed blocks of at least 128 KiB back to the system immediately. It also gives
back the free end of the heap if that has at least 64 KiB.

glibc's own values are similar, but grow with the sizes of freed blocks. With them, glibc keeps the freed memory of
former lists and answers between blocks that are in use.
"""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""The numbers of these three parameters in glibc's malloc.h. musl has no `mallopt` and needs no such settings."""


def use_little() -> None:
    """Apply these settings to the process: to later connections, and to memory that is allocated later."""
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    with suppress(AttributeError, OSError, TypeError):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        allocator.mallopt(_M_TRIM_THRESHOLD, FREE_END_BYTES)
        allocator.mallopt(_M_ARENA_MAX, 1)  # one arena: otherwise each thread keeps free blocks of its own
