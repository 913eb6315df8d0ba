"""TFRecords and images written without TensorFlow; test_resnet50.py lets TensorFlow read them."""

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.workloads.resnet50 import jpeg
from validation.workloads.resnet50.generate import Shape, main, prepare, shard_parts
from validation.workloads.resnet50.tfrecord import Segment, crc32c, example_head, record


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4, and the check value in catalogues of CRCs
        (b"\0" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_crc32c(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=80), st.lists(st.binary(max_size=80), max_size=4))
def test_the_checksum_of_segments_is_that_of_the_whole(head: bytes, parts: list[bytes]) -> None:
    written = b"".join(record(head, [Segment(part) for part in parts]))
    assert written == b"".join(record(head + b"".join(parts)))


def test_a_record_has_length_and_masked_checksums() -> None:
    written = b"".join(record(b"123456789"))
    assert written[:8] == struct.pack("<Q", 9)
    rotated = (0xE3069283 >> 15 | 0xE3069283 << 17) & 0xFFFFFFFF
    assert written[-4:] == struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)
    assert written[12:-4] == b"123456789"


def test_an_example_is_the_protocol_buffer() -> None:
    """The expected bytes have field numbers and lengths computed by hand, as protoc would encode them."""
    whole = example_head({"a": 300, "b": b"x"}, "c", 2) + b"yz"
    assert whole == bytes.fromhex(
        "0a24"  # features, 36 bytes
        "0a0b" "0a0161" "1206" "1a04" "0a02ac02"  # a: int64_list [300]
        "0a0a" "0a0162" "1205" "0a03" "0a0178"  # b: bytes_list [x]
        "0a0b" "0a0163" "1206" "0a04" "0a02797a"  # c: bytes_list [yz]
    ).replace(b"\x0a\x24", bytes([0x0A, len(whole) - 2]), 1)  # fmt: skip


def markers(image: bytes) -> list[int]:
    """Return the markers of a JPEG, up to the scan."""
    place, codes = 2, []
    while image[place + 1] != 0xDA:
        assert image[place] == 0xFF
        codes.append(image[place + 1])
        place += 2 + struct.unpack(">H", image[place + 2 : place + 4])[0]
    return codes


def test_an_image_is_a_baseline_jpeg_and_no_marker_is_in_its_scan() -> None:
    source = random.Random(1)  # noqa: S311
    image = jpeg.head() + jpeg.body(40, 24, (20, -30, 40), 5, source)
    assert markers(image) == [0xDB, 0xC0, 0xC4, 0xC4]
    scan = image[image.index(b"\xff\xda") + 2 : -2]
    assert all(scan[place + 1] == 0 for place, byte in enumerate(scan[:-1]) if byte == 0xFF)
    assert image.endswith(b"\xff\xd9")


def parsed(content: bytes) -> list[bytes]:
    """Return the records of a file after comparing their checksums."""
    records = []
    while content:
        length = struct.unpack("<Q", content[:8])[0]
        data = content[12 : 12 + length]
        assert b"".join(record(data)) == content[: 16 + length]
        records.append(data)
        content = content[16 + length :]
    return records


def test_a_shard_has_its_records_and_every_run_makes_the_same(tmp_path: Path) -> None:
    shape = "--shards=2 --records=5 --record_bytes=20000 --classes=3 --width=32 --height=32"
    for directory, processes in (("a", 1), ("b", 2)):
        assert main([str(tmp_path / directory), *shape.split(), f"--processes={processes}"]) == 0
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["train-00000-of-00002", "train-00001-of-00002"]
    contents = [(tmp_path / "a" / name).read_bytes() for name in names]
    assert contents == [(tmp_path / "b" / name).read_bytes() for name in names]
    assert contents[0] != contents[1]
    records = [parsed(content) for content in contents]
    assert [len(of) for of in records] == [5, 5]
    assert len({data for of in records for data in of}) == 10


def test_records_are_as_large_as_asked_for() -> None:
    shape = Shape(shards=1, records=200, classes=4)
    size = sum(len(part) for part in shard_parts(shape, 0, prepare(shape))) / shape.records
    assert 0.9 * shape.record_bytes <= size <= 1.1 * shape.record_bytes


@pytest.mark.parametrize("option", ["--shards=0", "--classes=1001", "--processes=0", "--records=-1"])
def test_a_data_set_that_cannot_be_is_refused(option: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main([str(tmp_path), option])
    assert exit_code.value.code == 2
