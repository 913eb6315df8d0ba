"""Fetches published programs of the control plane, and compares their archives with the digests in `prebuilt.yaml`."""

import hashlib
import http.client
import os
import platform
import shutil
import ssl
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import yaml

from musterlab import build
from orchestrator.progress import Reporter

MIRROR_VARIABLE: Final = "MUSTER_LAB_ARCHIVES"
"""Environment variable: URL of a directory with the archives under their file names, or `none` to build instead."""

_LIST: Final = Path(__file__).parent / "prebuilt.yaml"
_NO_ARCHIVES: Final = "none"
_TIMEOUT_SECONDS: Final = 10
_CHUNK_BYTES: Final = 1 << 20
_MEBIBYTE: Final = 1 << 20
_EXECUTABLE: Final = 0o700


class ArchivesUnavailable(Exception):
    """The archives cannot be fetched, or one of them differs from its digest."""


@dataclass(frozen=True)
class Archive:
    """A published file: a tar archive with programs, or one program itself."""

    url: str
    digest: str
    programs: tuple[str, ...]
    is_program: bool

    @property
    def file(self) -> str:
        """Name of the file, also on a mirror."""
        return self.url.rpartition("/")[2]

    def address(self) -> str:
        """Return the URL of the archive: on the mirror that the environment names, else at its publisher."""
        mirror = os.environ.get(MIRROR_VARIABLE, "")
        return f"{mirror.rstrip('/')}/{self.file}" if mirror else self.url


@cache
def _lists() -> Mapping[str, tuple[Archive, ...]]:
    entries: Mapping[str, Sequence[Mapping[str, str]]] = yaml.safe_load(_LIST.read_text())
    return {
        machine: tuple(
            Archive(
                each["url"],
                each["digest"],
                tuple(each.get("programs") or (each["program"],)),
                "program" in each,
            )
            for each in archives
        )
        for machine, archives in entries.items()
    }


def archives(programs: Sequence[str]) -> tuple[Archive, ...]:
    """Return the archives of these programs. The result is empty if a program is not published for this machine."""
    if os.environ.get(MIRROR_VARIABLE, "") == _NO_ARCHIVES:
        return ()
    published = _lists().get(platform.machine(), ())
    has_all = set(programs) <= {program for archive in published for program in archive.programs}
    return tuple(archive for archive in published if set(archive.programs) & set(programs)) if has_all else ()


def cache_key(wanted: Sequence[Archive]) -> str:
    """Return the name of the archives' directory in the cache: a hash of their digests."""
    return (
        "prebuilt-" + hashlib.sha256(" ".join(archive.digest for archive in wanted).encode()).hexdigest()[:16]
    )


def fetch(target: Path, wanted: Sequence[Archive], reporter: Reporter) -> None:
    """Fetch the programs into a temporary directory, and rename it to `target` when it is complete.

    Raises:
        ArchivesUnavailable: an archive cannot be fetched, is damaged, or differs from its digest.
        BinariesError: the disk is full.
        StateError: the cache directory cannot be written.
    """

    def fill(partial: Path) -> None:
        (partial / "bin").mkdir(parents=True, mode=0o700)
        for archive in wanted:
            _take(archive, partial, reporter)
        count = sum(len(archive.programs) for archive in wanted)
        reporter(f"fetched {count} published programs, each proved by its digest")

    build.fill_once(target, reporter, fill)


def _take(archive: Archive, partial: Path, reporter: Reporter) -> None:
    """Fetch one archive, compare its digest, and unpack its programs."""
    fetched = partial / archive.file
    algorithm, _, expected = archive.digest.partition(":")
    try:
        found = _download(archive, fetched, algorithm, reporter)
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        ssl.SSLError,
        TimeoutError,
        ConnectionError,
        ValueError,
    ) as error:
        raise ArchivesUnavailable(f"{archive.address()}: {error}") from error
    if found != expected:
        raise ArchivesUnavailable(
            f"{archive.address()} has the {algorithm} {found[:16]}… instead of {expected[:16]}…: it was not used"
        )
    if archive.is_program:
        program = partial / "bin" / archive.programs[0]
        fetched.rename(program)
        program.chmod(_EXECUTABLE)
        return
    _unpack(archive, fetched, partial / "bin")
    fetched.unlink()


def _download(archive: Archive, path: Path, algorithm: str, reporter: Reporter) -> str:
    """Download the archive to `path` and return its digest."""
    digest, done = hashlib.new(algorithm), 0
    address = archive.address()
    with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as response, path.open("wb") as file:  # noqa: S310
        total = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read(_CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            of = f" of {total // _MEBIBYTE}" if total else ""
            reporter.update(f"fetched {done // _MEBIBYTE}{of} MiB of {archive.file}")
    return digest.hexdigest()


def _unpack(archive: Archive, fetched: Path, directory: Path) -> None:
    """Write the programs of the archive into `directory`, without the folders that they have in the archive."""
    missing = set(archive.programs)
    try:
        with tarfile.open(fetched) as content:
            for member in content:
                name = Path(member.name).name
                data = content.extractfile(member) if member.isfile() and name in missing else None
                if data is not None:
                    with data, (directory / name).open("wb") as file:
                        shutil.copyfileobj(data, file, _CHUNK_BYTES)
                    (directory / name).chmod(_EXECUTABLE)
                    missing.discard(name)
    except (tarfile.TarError, EOFError) as error:
        raise ArchivesUnavailable(f"{archive.file} is damaged: {error}") from error
    if missing:
        raise ArchivesUnavailable(f"{archive.file} lacks {', '.join(sorted(missing))}")
