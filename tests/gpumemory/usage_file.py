"""Reads the file that counts the processes of a container, in the layout of gpumemory/usage.c."""

import struct
from pathlib import Path
from typing import Final

_HEADER_BYTES: Final = 16 + 16 * 16
_SLOTS: Final = 1024


def counted_bytes(state: Path, device: int = 0) -> int:
    """Return the bytes that the file counts on a device for all processes; 0 if the directory has no file yet."""
    file = state / "usage.1"
    if not file.exists():
        return 0
    content = file.read_bytes()
    slot_bytes = (len(content) - _HEADER_BYTES) // _SLOTS
    return sum(
        struct.unpack_from("Q", content, _HEADER_BYTES + slot_bytes * slot + 8 + 8 * device)[0]
        for slot in range(_SLOTS)
    )
