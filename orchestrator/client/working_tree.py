"""Packs the files of a working tree into an archive for the container of a job (`submit --code`).

In a Git work tree, the archive has the tracked files, and the new files that are neither hidden nor ignored. Elsewhere
it has all files that are not hidden. Untracked `__pycache__` directories are left out. Git itself applies its ignore
rules.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import stat
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.errors import InvalidField
from orchestrator.submit.values import MAX_CODE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

MAX_FILES: Final = 10_000
MAX_FILE_BYTES: Final = 32 << 20
"""Maximum size of all files before the compression: more is refused without compressing it."""
_MAX_LINKS: Final = 40
"""The limit of Linux for links in one path."""
_SHOWN: Final = 3
_GIT_VARIABLES: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Environment variables that Git sets in hooks. They would direct Git to another repository."""


def pack_code(directory: Path | str) -> bytes:
    """Return the files of a working tree as a compressed tar archive of at most 1 MiB, for `Submission.code`.

    Symbolic links stay links. The files belong to root and can be read by all users. Raises InvalidField for a
    directory that has no files or too many, and for a link to a file that is not in the archive.
    """
    if not str(directory) or not Path(directory).is_dir():
        raise InvalidField("{code} {directory}: is not a directory", directory=str(directory) or "''")
    try:
        return _Tree(Path(directory)).archive()
    except OSError as error:
        raise InvalidField(
            "{code} {directory}: {file} cannot be read: {why}",
            directory=str(directory),
            file=error.filename,
            why=error.strerror,
        ) from error


class _Tree:
    """The files of a directory for the archive. `sizes` has their sizes in bytes by their path in the directory."""

    def __init__(self, directory: Path) -> None:
        self._given = directory
        self._root = directory.resolve()  # of a link to a part of a Git work tree, that repository decides
        self.sizes: dict[str, int] = {}
        for name in self._listed(self._root):
            status = (self._root / name).lstat()
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                raise self._problem("{name!r} is neither a file nor a link: exclude it", name=name)
            self.sizes[name] = status.st_size
            if len(self.sizes) > MAX_FILES:
                raise self._problem("has more than {limit} files: {else_use}", limit=MAX_FILES)

    def archive(self) -> bytes:
        if not self.sizes:
            raise self._problem(
                "has no files for the archive: ignored files, and hidden files that Git does not track, are left out"
            )
        if sum(self.sizes.values()) > MAX_FILE_BYTES:
            raise self._too_large(f"has {_size(sum(self.sizes.values()))} of files")
        self._check_links()
        buffer = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as tar,
        ):
            for name in sorted(self.sizes):
                self._add(tar, name)
        packed = buffer.getvalue()
        if len(packed) > MAX_CODE_BYTES:
            raise self._too_large(f"has {_size(len(packed))} when compressed")
        return packed

    def _add(self, tar: tarfile.TarFile, name: str) -> None:
        path = self._root / name
        status = path.lstat()
        member = tarfile.TarInfo(name)
        member.mtime = int(status.st_mtime)
        if stat.S_ISLNK(status.st_mode):
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
            tar.addfile(member)
            return
        content = path.read_bytes()
        member.size = len(content)
        member.mode = 0o755 if status.st_mode & 0o111 else 0o644
        tar.addfile(member, io.BytesIO(content))

    # --- the choice of files ----------------------------------------------------------------------------

    def _listed(self, directory: Path) -> Iterator[str]:
        """Yield the paths of the files for the archive."""
        if any((above / ".git").exists() for above in (directory.absolute(), *directory.absolute().parents)):
            yield from self._listed_by_git(directory)
        else:
            yield from self._walked(directory)

    def _listed_by_git(self, directory: Path) -> Iterator[str]:
        new = (
            name for name in self._git(directory, "--others", "--exclude-standard") if not _is_private(name)
        )
        for name in dict.fromkeys((*self._git(directory, "--cached"), *new)):
            path = directory / name
            if path.is_dir() and not path.is_symlink():  # a submodule, or another repository
                if (path / ".git").exists():
                    yield from self._listed_by_git(path)
            # a deleted file stays tracked until the next commit
            elif os.path.lexists(path) and not self._is_behind_link(path):
                yield str(path.relative_to(self._root))

    def _is_behind_link(self, path: Path) -> bool:
        """Return whether a directory above the file is a link now.

        Git still tracks the files of the former directory.
        """
        above = itertools.takewhile(lambda parent: parent != self._root, path.parents)
        return any(parent.is_symlink() for parent in above)

    def _git(self, directory: Path, *options: str) -> list[str]:
        command = ["git", "-c", "core.fsmonitor=false", "-C", str(directory), "ls-files", "-z", *options]
        environment = {name: value for name, value in os.environ.items() if name not in _GIT_VARIABLES}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, check=False)
        except FileNotFoundError as error:
            raise self._problem("is in a Git work tree, and `git` is not installed: install it") from error
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
            raise self._problem("Git cannot list the files: {said}", said=said)
        return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]

    def _walked(self, directory: Path) -> Iterator[str]:
        waiting = [directory]  # a stack, because directories can be deeper than calls
        while waiting:
            for entry in sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name):
                if _is_private(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    yield str(Path(entry.path).relative_to(self._root))

    def _check_links(self) -> None:
        links = {
            tuple(Path(name).parts): (self._root / name).readlink()
            for name in self.sizes
            if (self._root / name).is_symlink()
        }
        arriving = {
            tuple(Path(name).parts[:depth]) for name in self.sizes for depth in range(name.count("/") + 2)
        }
        for place, target in links.items():
            if not _arrives(place, links, arriving):
                raise self._problem(
                    "the link {name!r} leads to {target!r}, which is not in the archive: exclude the link",
                    name="/".join(place),
                    target=str(target),
                )

    # --- messages ---------------------------------------------------------------------------------------

    def _problem(self, text: str, **values: object) -> InvalidField:
        text = text.replace(
            "{else_use}", "exclude files by .gitignore of a Git work tree, or use {git}, {claims} or an image"
        )
        return InvalidField("{code} {directory}: " + text, directory=str(self._given), **values)

    def _too_large(self, said: str) -> InvalidField:
        largest = sorted(self.sizes, key=lambda name: -self.sizes[name])[:_SHOWN]
        return self._problem(
            "{said}, and at most {limit} when compressed are possible. The largest: {largest}; {else_use}",
            said=said,
            limit=_size(MAX_CODE_BYTES),
            largest=", ".join(f"{name} ({_size(self.sizes[name])})" for name in largest),
        )


def _arrives(
    link: tuple[str, ...], links: Mapping[tuple[str, ...], Path], arriving: Set[tuple[str, ...]]
) -> bool:
    """Return whether a link leads to a file or a directory of the archive where the archive is unpacked."""
    place: tuple[str, ...] = ()
    parts = list(reversed(link))
    followed = 0
    while parts:
        part = parts.pop()
        if part == "..":
            if not place:
                return False
            place = place[:-1]
            continue
        place = (*place, part)
        if place not in arriving:
            return False
        if place in links:
            followed += 1
            if links[place].is_absolute() or followed > _MAX_LINKS:
                return False
            parts.extend(reversed(links[place].parts))
            place = place[:-1]
    return True


def _is_private(name: str) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in Path(name).parts)


def _size(size_bytes: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
