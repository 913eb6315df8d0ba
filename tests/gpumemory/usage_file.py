"""The file in which the processes of a container are counted, as gpumemory/usage.c lays it out."""

import struct
from pathlib import Path
from typing import Final

_HEADER_BYTES: Final = 16 + 16 * 16
_SLOTS: Final = 1024


def counted_bytes(state: Path, device: int = 0) -> int:
    """Return what is counted of a device for all processes, by the directory of the file; 0 where there is none yet."""
    file = state / "usage.1"
    if not file.exists():
        return 0
    content = file.read_bytes()
    slot_bytes = (len(content) - _HEADER_BYTES) // _SLOTS
    return sum(
        struct.unpack_from("Q", content, _HEADER_BYTES + slot_bytes * slot + 8 + 8 * device)[0]
        for slot in range(_SLOTS)
    )
