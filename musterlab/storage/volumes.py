"""Volumes and snapshots of the lab's CSI driver: one folder each, and a copy of the bytes for a clone or a snapshot.

A new folder is renamed to its final name when it is complete. So a killed driver leaves no incomplete volume.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from grpclib import GRPCError, Status

Kind = Literal["volumes", "snapshots"]

_SIZE_BYTES: Final = 1 << 30
_DATA: Final = "data"
_RECORD: Final = "record.json"
_UNFINISHED: Final = "unfinished"
_IDENTIFIER: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Stored:
    """A volume, or a snapshot of one."""

    identifier: str
    name: str
    size_bytes: int
    """Requested size. Nothing enforces it."""
    source: str
    """Origin of its bytes, such as `snapshots/0f…`. It is empty if the volume began empty."""
    created_nanoseconds: int


class Volumes:
    """The volumes and snapshots in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[Kind, str], asyncio.Task[Stored]] = {}
        shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
        for name in ("volumes", "snapshots", _UNFINISHED):
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)

    def find(self, kind: Kind, identifier: str) -> Stored:
        """Return a volume or a snapshot. Raises GRPCError if there is none."""
        stored = self._read(kind, identifier)
        if stored is None:
            raise GRPCError(Status.NOT_FOUND, f"there is no {identifier!r} among the {kind}")
        return stored

    def data(self, volume: Stored) -> Path:
        """Return the folder with the bytes of a volume."""
        return self._folder / "volumes" / volume.identifier / _DATA

    async def create_volume(
        self, name: str, source: tuple[Kind, str] | None, required_bytes: int, limit_bytes: int
    ) -> Stored:
        """Return the volume of this name; create it first, empty or with the bytes of its source, if there is none.

        Raises:
            GRPCError: the source is missing or too large, the copy failed, or a volume of this name has another size
                or source.
        """
        if required_bytes < 0 or limit_bytes < 0 or 0 < limit_bytes < required_bytes:
            raise GRPCError(Status.OUT_OF_RANGE, f"size {required_bytes} to {limit_bytes} bytes: not a range")
        origin = "/".join(source) if source else ""
        volume = self._read("volumes", _identifier(name))
        if volume is None:
            least = self.find(*source).size_bytes if source else 0
            size = required_bytes or max(least, min(_SIZE_BYTES, limit_bytes or _SIZE_BYTES))
            if size < least or 0 < limit_bytes < size:
                raise GRPCError(
                    Status.OUT_OF_RANGE, f"{origin} has {least} bytes, more than {name!r} may have"
                )
            volume = await self._once("volumes", name, size, origin)
        fits = required_bytes <= volume.size_bytes and (not limit_bytes or volume.size_bytes <= limit_bytes)
        if not fits or volume.source != origin:
            raise GRPCError(Status.ALREADY_EXISTS, f"volume {name!r} exists with another size or source")
        return volume

    async def create_snapshot(self, name: str, volume: str) -> Stored:
        """Return the snapshot of this name; copy the bytes of the volume first if there is none.

        Raises:
            GRPCError: the volume is missing, the copy failed, or a snapshot of this name is of another volume.
        """
        origin = f"volumes/{volume}"
        snapshot = self._read("snapshots", _identifier(name))
        if snapshot is None:
            size = self.find("volumes", volume).size_bytes
            snapshot = await self._once("snapshots", name, size, origin)
        if snapshot.source != origin:
            raise GRPCError(Status.ALREADY_EXISTS, f"snapshot {name!r} exists of another volume")
        return snapshot

    async def delete(self, kind: Kind, identifier: str) -> None:
        """Delete a volume or a snapshot with its bytes; nothing to do if there is none."""
        if self._read(kind, identifier) is None:
            return
        removed = Path(tempfile.mkdtemp(dir=self._folder / _UNFINISHED))
        (self._folder / kind / identifier).rename(removed / identifier)
        await asyncio.to_thread(shutil.rmtree, removed)

    def _read(self, kind: Kind, identifier: str) -> Stored | None:
        if not _IDENTIFIER.fullmatch(identifier):
            return None
        try:
            content = (self._folder / kind / identifier / _RECORD).read_text()
        except FileNotFoundError:
            return None
        return Stored(**json.loads(content))

    async def _once(self, kind: Kind, name: str, size_bytes: int, source: str) -> Stored:
        """Create a volume or snapshot. If an earlier call is creating it, wait for that call.

        If the caller gives up, the copy continues, and the next call finds it.
        """
        stored = Stored(_identifier(name), name, size_bytes, source, time.time_ns())
        key = (kind, stored.identifier)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._create(kind, stored))
            task.add_done_callback(lambda _task: self._running.pop(key))
        return await asyncio.shield(task)

    async def _create(self, kind: Kind, stored: Stored) -> Stored:
        unfinished = Path(tempfile.mkdtemp(dir=self._folder / _UNFINISHED))
        try:
            data = unfinished / _DATA
            data.mkdir()
            data.chmod(0o777)  # pods of any user must be able to write into an empty volume
            if stored.source:
                origin = self._folder / stored.source / _DATA
                await run("cp", "--archive", "--reflink=auto", f"{origin}/.", str(data))
            (unfinished / _RECORD).write_text(json.dumps(asdict(stored)))
            unfinished.rename(self._folder / kind / stored.identifier)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return stored


def _identifier(name: str) -> str:
    """Return the id of a volume or snapshot: a digest, because a name can have characters that a path cannot."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


async def run(*command: str) -> None:
    """Run a program of the machine. Raises GRPCError with its last line if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "LC_ALL": "C"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise GRPCError(
            Status.INTERNAL, lines[-1] if lines else f"{command[0]} ended with {process.returncode}"
        )
