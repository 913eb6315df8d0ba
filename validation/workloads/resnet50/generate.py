"""Makes a data set of the shape of ImageNet, for sites without a licence for ImageNet: `python -m ….generate
DIRECTORY`.

The numbers of files, records and bytes are those of ImageNet's TFRecords: 1,024 files of 1,251 records of about 115 kB.
The images are textures in the colour of their class. Every record has unique bytes, so storage with deduplication finds
no equal blocks.
"""

import argparse
import os
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from validation.workloads.resnet50 import jpeg
from validation.workloads.resnet50.tfrecord import Segment, example_head, record

CLASSES: Final = 1000
NOISE_BYTES: Final = 32_768
"""Maximum number of random bytes in one comment; the comments of small records are shorter."""
_MARK_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a data set: files, records in a file, bytes in a record, and classes."""

    shards: int = 1024
    records: int = 1251
    record_bytes: int = 114_660
    classes: int = CLASSES
    width: int = 400
    height: int = 350
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Material:
    """The components of records: comments with random bytes, and images without their first marker."""

    noise: Sequence[Segment]
    images: Sequence[Segment]


def prepare(shape: Shape, images: int = 64) -> Material:
    """Return the material with at most `images` different images, but no more than there are classes.

    Classes share images.
    """
    source = random.Random(shape.seed)  # noqa: S311 - not for secrets
    size = min(NOISE_BYTES, max(1, shape.record_bytes // 16))
    noise = [Segment(jpeg.comment_head(size) + source.randbytes(size)) for _ in range(4)]
    blocks = 3 * -(-shape.width // 8) * -(-shape.height // 8)
    # A coefficient takes about 10 bits. Half of the record is the image, the other half is the noise in its
    # comments.
    details = max(1, min(24, (shape.record_bytes // 2) * 8 // blocks // 10))
    count = min(images, shape.classes)
    return Material(noise, [Segment(_image(shape, number, details, source)) for number in range(count)])


def shard_parts(shape: Shape, number: int, material: Material) -> Iterator[bytes]:
    """Yield the parts of the content of file `number`."""
    source = random.Random(f"{shape.seed}/{number}")  # noqa: S311 - not for secrets
    for place in range(shape.records):
        label = source.randrange(shape.classes)
        image = material.images[label % len(material.images)]
        least, size = len(image.data), len(material.noise[0].data)
        target = int(shape.record_bytes * source.uniform(0.6, 1.4))
        comments = [source.choice(material.noise) for _ in range(max(0, round((target - least) / size)))]
        segments = [*comments, image]
        name = f"muster_{number:05d}_{place:05d}.JPEG"
        yield from record(_head(shape, name, label, source.randbytes(_MARK_BYTES), segments), segments)


def write_shard(number: int, *, shape: Shape, directory: Path, material: Material) -> int:
    """Write one file atomically, and return its size in bytes."""
    path = directory / f"train-{number:05d}-of-{shape.shards:05d}"
    partial_path = path.with_name(f".{path.name}.partial")
    with partial_path.open("wb") as file:
        for part in shard_parts(shape, number, material):
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    partial_path.replace(path)
    return path.stat().st_size


def main(argv: Sequence[str] | None = None) -> int:
    """Generate the data set that the command line describes; return the exit code."""
    parser = argparse.ArgumentParser(prog="generate", description="Make TFRecords of the shape of ImageNet.")
    shape = Shape()
    parser.add_argument("directory", type=Path)
    for name in Shape.__slots__:
        value = getattr(shape, name)
        parser.add_argument(f"--{name}", type=int, default=value, help=f"({value})")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(one for each CPU)")
    values = vars(parser.parse_args(argv))
    directory, processes = values.pop("directory"), values.pop("processes")
    shape = Shape(**values)
    if min(values.values()) < 1 or shape.shards > 99_999 or shape.classes > CLASSES or processes < 1:
        parser.error("all numbers must be at least 1; at most 99,999 shards and 1,000 classes")
    directory.mkdir(parents=True, exist_ok=True)
    work = partial(write_shard, shape=shape, directory=directory, material=prepare(shape))
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        written = sum((pool.map if processes > 1 else map)(work, range(shape.shards)))
    sys.stdout.write(f"{shape.shards} files, {shape.shards * shape.records} records, {written} bytes\n")
    return 0


def _image(shape: Shape, number: int, details: int, source: random.Random) -> bytes:
    """Return image `number` without its first marker. Each image has a colour of its own."""
    colour = (number * 5 % 200 - 100, number * 37 % 160 - 80, number * 53 % 160 - 80)
    return jpeg.body(shape.width, shape.height, colour, details, source)


def _head(shape: Shape, name: str, label: int, mark: bytes, segments: Sequence[Segment]) -> bytes:
    """Return the bytes of a record before its segments: all features but the image, and the unique first bytes of the
    image.
    """
    start = jpeg.head() + jpeg.comment_head(len(mark)) + mark
    features: dict[str, int | bytes] = {
        "image/class/label": label + 1,  # class 0 is the background
        "image/filename": name.encode(),
        "image/format": b"JPEG",
        "image/height": shape.height,
        "image/width": shape.width,
    }
    size = len(start) + sum(len(segment.data) for segment in segments)
    return example_head(features, "image/encoded", size) + start


if __name__ == "__main__":
    sys.exit(main())
