"""Finds functions in the libraries of this process by the symbols in their files, past all hooks."""

import ctypes
import functools
import mmap
import struct
from collections.abc import Callable
from ctypes import c_int
from pathlib import Path
from typing import Final

_SECTIONS_AT: Final = 0x28
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS: Final = 11
_FUNCTION: Final = 2


def address_in(library: str, name: str) -> int:
    """Return the address of a function in the loaded library whose file name begins with
    `library`. Raises LookupError.
    """
    base, path = _loaded(library)
    try:
        return base + functions_of(path)[name]
    except KeyError:
        raise LookupError(f"{path} has no {name}") from None


def function_in(library: str, name: str) -> Callable[..., int]:
    """Return a function of a loaded library, for calls without types. Raises LookupError."""
    return ctypes.CFUNCTYPE(c_int)(address_in(library, name))


@functools.cache
def functions_of(path: Path) -> dict[str, int]:
    """Return the exported functions of a 64-bit shared library, by name, with their offsets from the base."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        (start,) = struct.unpack_from("<Q", content, _SECTIONS_AT)
        size, count = struct.unpack_from("<HH", content, 0x3A)
        sections = [_SECTION.unpack_from(content, start + size * index) for index in range(count)]
        functions = {}
        for _, kind, _, _, offset, length, link, _, _, _ in sections:
            if kind != _DYNAMIC_SYMBOLS:
                continue
            names = sections[link][4]
            for name_at, info, _, section, value, _ in _SYMBOL.iter_unpack(content[offset : offset + length]):
                if section and info & 0xF == _FUNCTION:
                    end = content.find(b"\0", names + name_at)
                    functions[content[names + name_at : end].decode()] = int(value)
    return functions


def _loaded(library: str) -> tuple[int, Path]:
    """Return the lowest address and the file of a loaded library. Raises LookupError."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and Path(words[5]).name.startswith(library) and int(words[2], 16) == 0:
            return int(words[0].partition("-")[0], 16), Path(words[5])
    raise LookupError(f"{library} is not loaded")
