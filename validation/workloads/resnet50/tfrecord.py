"""TFRecord files with tf.train.Example records, written without TensorFlow.

A record has four parts: the length of the data (8 bytes, little endian) and its masked CRC-32C, then the data and its
masked CRC-32C.

Python calculates a CRC-32C at a few MB/s. So a record is composed of segments with known checksums. The record's
checksum is combined from them: four table lookups shift a checksum over the bytes that follow.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli, bits reversed
_MASK_DELTA: Final = 0xA282EAD8


def _byte_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE: Final = _byte_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of the bytes."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


class Segment:
    """Bytes with their checksum, which is calculated only once."""

    __slots__ = ("_shift", "crc", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.crc = crc32c(data)
        self._shift = _shift_tables(len(data))

    def crc_after(self, crc: int) -> int:
        """Return the checksum of other bytes followed by this segment. `crc` is the checksum of the other bytes."""
        first, second, third, fourth = self._shift
        return (
            first[crc & 0xFF]
            ^ second[crc >> 8 & 0xFF]
            ^ third[crc >> 16 & 0xFF]
            ^ fourth[crc >> 24]
            ^ self.crc
        )


def record(head: bytes, segments: Sequence[Segment] = ()) -> list[bytes]:
    """Return the parts of a record in the order of the file. Its data are `head` and then the segments."""
    crc = crc32c(head)
    for segment in segments:
        crc = segment.crc_after(crc)
    length = struct.pack("<Q", len(head) + sum(len(segment.data) for segment in segments))
    return [
        length,
        struct.pack("<I", _masked(crc32c(length))),
        head,
        *(segment.data for segment in segments),
        struct.pack("<I", _masked(crc)),
    ]


def example_head(features: Mapping[str, int | bytes], last: str, size: int) -> bytes:
    """Return the beginning of a tf.train.Example: all `features`, then the bytes feature `last` without its value of
    `size` bytes.
    """
    entries = [_entry(name, _feature(value)) for name, value in features.items()]
    opened = _entry_head(last, size)
    body = sum(map(len, entries)) + len(opened) + size
    return b"".join([_tag(1, body), *entries, opened])


def _feature(value: int | bytes) -> bytes:
    """Return a tf.train.Feature with one value: field 1 is bytes_list, field 3 is int64_list."""
    if isinstance(value, bytes):
        return _field(1, _field(1, value))
    return _field(3, _field(1, _varint(value)))


def _entry(name: str, feature: bytes) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, feature))


def _entry_head(name: str, size: int) -> bytes:
    """Return an entry of a bytes feature, without its value of `size` bytes. Every length includes the value."""
    layers = [_tag(1, size)]  # the value in its bytes_list
    layers.insert(0, _tag(1, _length(layers) + size))  # the bytes_list in its feature
    layers.insert(0, _tag(2, _length(layers) + size))  # the feature in its entry
    layers.insert(0, _field(1, name.encode()))  # the key before it
    layers.insert(0, _tag(1, _length(layers) + size))  # the entry in the features
    return b"".join(layers)


def _length(parts: Iterable[bytes]) -> int:
    return sum(map(len, parts))


def _field(number: int, content: bytes) -> bytes:
    return _tag(number, len(content)) + content


def _tag(number: int, length: int) -> bytes:
    """Return the tag and the length of a length-delimited field of a protocol buffer."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _masked(crc: int) -> int:
    """Return the checksum with TFRecord's mask.

    The mask is for data that contain checksums: a plain CRC is weak over them.
    """
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _shift_tables(length: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the tables that shift a checksum over `length` zero bytes: one for each byte of the checksum."""
    columns = [1 << bit for bit in range(32)]  # the identity matrix
    power = [_zero_bit(1 << bit) for bit in range(32)]
    bits = 8 * length
    while bits:
        if bits & 1:
            columns = [_apply(power, column) for column in columns]
        power = [_apply(power, column) for column in power]
        bits >>= 1
    first, second, third, fourth = (_sums(columns[bit : bit + 8]) for bit in (0, 8, 16, 24))
    return first, second, third, fourth


def _sums(columns: Sequence[int]) -> list[int]:
    """Return, for each value of a byte, the sum (XOR) of the columns of its set bits."""
    sums = [0] * 256
    for byte in range(1, 256):
        lowest = byte & -byte
        sums[byte] = sums[byte ^ lowest] ^ columns[lowest.bit_length() - 1]
    return sums


def _zero_bit(value: int) -> int:
    return (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)


def _apply(columns: Sequence[int], value: int) -> int:
    result = 0
    for column in columns:
        if value & 1:
            result ^= column
        value >>= 1
    return result
