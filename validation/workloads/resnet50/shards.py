"""Assigns the files of the data set to workers and mounts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from validation.judge.training.training_result import MountRead
from validation.workloads.resnet50.faults import DataFault

_NAME: Final = re.compile(r"train-(?P<number>\d{5})-of-(?P<total>\d{5})")


@dataclass(frozen=True, slots=True)
class Shard:
    """A file, and the number of the mount over which it is read."""

    path: Path
    mount: int


def find_shards(directories: Sequence[Path], *, worker: int = 0, workers: int = 1) -> list[Shard]:
    """Return the shards of one worker, with alternating mounts. `directories` has one directory for each mount.

    Raises DataFault if a shard is missing or empty, if it differs between two mounts, or if there are fewer shards
    than mounts.
    """
    sizes = [_sizes(directory) for directory in directories]
    names = sorted(sizes[0])
    for directory, other in zip(directories[1:], sizes[1:], strict=True):
        if other != sizes[0]:
            name = min(set(other.items()) ^ set(sizes[0].items()))[0]
            raise DataFault(f"{directory} does not show the data of {directories[0]}: {name} differs")
    own = names[worker::workers]
    if len(own) < len(directories):
        raise DataFault(
            f"{directories[0]} has {len(names)} shards; {workers} workers with {len(directories)} mounts need "
            f"{workers * len(directories)}"
        )
    return [
        Shard(directories[number % len(directories)] / name, number % len(directories))
        for number, name in enumerate(own)
    ]


def describe_mounts(
    directories: Sequence[Path], shards: Sequence[Shard], images: Sequence[int], mountinfo: str
) -> list[MountRead]:
    """Return the numbers of shards and images that were read over each mount.

    `mountinfo` is the text of /proc/self/mountinfo.
    """
    described = []
    for number, directory in enumerate(directories):
        point, source, file_system = mount_of(directory, mountinfo)
        described.append(
            MountRead(
                directory=str(directory),
                mount_point=point,
                source=source,
                file_system=file_system,
                shards=sum(shard.mount == number for shard in shards),
                images=images[number],
            )
        )
    return described


def mount_of(path: Path, mountinfo: str) -> tuple[str, str, str]:
    """Return mount point, source and type of the file system of `path`; three empty texts if no mount has it.

    If two mounts have the same point, the later mount counts. The format is in proc_pid_mountinfo(5): characters can be
    octal escapes, and a dash ends the optional fields.
    """
    best = ("", "", "")
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, details = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(details) < 2:
            continue
        point = _unescape(fields[4])
        if path.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, _unescape(details[1]), details[0])
    return best


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _sizes(directory: Path) -> dict[str, int]:
    """Return the sizes of all shards of a directory in bytes, by name. Raises DataFault."""
    try:
        entries = {
            path.name: path.stat().st_size for path in directory.iterdir() if _NAME.fullmatch(path.name)
        }
    except OSError as error:
        raise DataFault(f"{directory} cannot be read: {error.strerror}") from error
    totals = {name.rpartition("-")[2] for name in entries}
    if not entries:
        raise DataFault(f"{directory} has no train-NNNNN-of-NNNNN")
    if len(totals) > 1:
        raise DataFault(f"{directory} has shards of several data sets: of {', '.join(sorted(totals))}")
    total = totals.pop()
    for number in range(int(total)):
        name = f"train-{number:05d}-of-{total}"
        if not entries.get(name):
            raise DataFault(f"{directory / name} is {'empty' if name in entries else 'missing'}")
    return entries
