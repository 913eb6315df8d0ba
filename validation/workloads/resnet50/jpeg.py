"""Writes synthetic JPEG images without an encoder: random coefficients, block by block.

For the decoder, an image is as expensive as a photograph of the same size: the numbers of blocks, coefficients and
bytes are equal. The format is baseline, 4:4:4, ITU-T T.81. The Huffman codes have a fixed length (4 and 8 bits), which
the format allows.
"""

import random
import struct
from typing import Final

_QUANTIZER: Final = 16
_ZERO_RUNS: Final = 4
_DC_SIZES: Final = list(range(12))
_AC_SYMBOLS: Final = [0x00, *(run << 4 | size for run in range(_ZERO_RUNS) for size in range(1, 4))]


class _Bits:
    """Collects bits into bytes. As the format demands, a zero byte follows each byte 0xFF."""

    def __init__(self) -> None:
        self._value = 0
        self._count = 0
        self._data = bytearray()

    def add(self, value: int, count: int) -> None:
        self._value = self._value << count | value
        self._count += count
        while self._count >= 8:
            self._count -= 8
            byte = self._value >> self._count & 0xFF
            self._data.append(byte)
            if byte == 0xFF:
                self._data.append(0)
        self._value &= (1 << self._count) - 1

    def data(self) -> bytes:
        if self._count:
            self.add((1 << 8 - self._count) - 1, 8 - self._count)
        return bytes(self._data)


def head() -> bytes:
    """Return the first marker of an image, which precedes the comments."""
    return b"\xff\xd8"


def comment_head(size: int) -> bytes:
    """Return the marker and the length of a comment of `size` bytes, at most 65,533."""
    return b"\xff\xfe" + struct.pack(">H", size + 2)


def body(width: int, height: int, colour: tuple[int, int, int], details: int, source: random.Random) -> bytes:
    """Return an image without its first marker.

    It has about one colour (Y, Cb, Cr from -128 to 127) and a random texture.

    `details` coefficients in each block of 8 by 8 pixels are the texture; they take most of the bytes.
    """
    quantizers = _segment(0xDB, bytes([0, *[_QUANTIZER] * 64]))
    components = b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
    frame = _segment(0xC0, struct.pack(">BHHB", 8, height, width, 3) + components)
    codes = _segment(0xC4, _codes(0x00, 4, _DC_SIZES)) + _segment(0xC4, _codes(0x10, 8, _AC_SYMBOLS))
    scan = _segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0]))
    return quantizers + frame + codes + scan + _scan(width, height, colour, details, source) + b"\xff\xd9"


def _scan(
    width: int, height: int, colour: tuple[int, int, int], details: int, source: random.Random
) -> bytes:
    bits = _Bits()
    levels = [0, 0, 0]
    for _ in range(-(-width // 8) * -(-height // 8)):
        for component, value in enumerate(colour):
            # The mean of a block is an eighth of its first coefficient.
            level = (max(-128, min(127, value + source.randrange(-8, 9))) * 8) // _QUANTIZER
            difference, levels[component] = level - levels[component], level
            size = abs(difference).bit_length()
            bits.add(_DC_SIZES.index(size), 4)
            bits.add(difference if difference >= 0 else difference + (1 << size) - 1, size)
            _add_details(bits, details, source)
    return bits.data()


def _add_details(bits: _Bits, details: int, source: random.Random) -> None:
    place = 0
    for _ in range(details):
        run, size = source.randrange(_ZERO_RUNS), source.randrange(1, 4)
        if place + run + 1 > 63:
            break
        place += run + 1
        bits.add(1 + run * 3 + size - 1, 8)
        bits.add(source.randrange(1 << size), size)
    if place < 63:
        bits.add(0, 8)


def _codes(kind: int, length: int, symbols: list[int]) -> bytes:
    """Return a Huffman table in which all codes have this length."""
    counts = [0] * 16
    counts[length - 1] = len(symbols)
    return bytes([kind, *counts, *symbols])


def _segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content
