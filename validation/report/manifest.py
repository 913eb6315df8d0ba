"""manifest.sha256: the digest of every file of a report, as `sha256sum --check` reads it, and last its own."""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

from validation.errors import ReportError

NAME = "manifest.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_OWN = "# sha256 of the lines above: "


def render(directory: Path) -> bytes:
    """The manifest of the files that are in the directory now."""
    lines = "".join(f"{_digest(directory / name)}  {name}\n" for name in _files(directory))
    return f"{lines}{_OWN}{hashlib.sha256(lines.encode()).hexdigest()}\n".encode()


def digest(directory: Path) -> str:
    """The digest of the manifest itself, which stands for the whole report. Raises ReportError."""
    return _digest(directory / NAME)


def problems(directory: Path, beside: Collection[str] = ()) -> list[str]:
    """A line for each file that is not as the manifest says, beginning with its name. Raises ReportError.

    Files in `beside` may be there without being in the manifest.
    """
    path = directory / NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    body, own, digest = content.rpartition(_OWN.encode())
    if not own or digest != hashlib.sha256(body).hexdigest().encode() + b"\n":
        return [f"{NAME}: was changed after the run"]
    if links := _no_plain_files(directory):
        return [f"{name}: is no plain file, so what it leads to can change" for name in links]
    recorded = dict(_parse(line) for line in body.decode().splitlines())
    files = [name for name in _files(directory) if name not in beside or name in recorded]
    lines = [f"{name}: is missing" for name in recorded if name not in files]
    lines += [f"{name}: is not of this report" for name in files if name not in recorded]
    lines += [
        f"{name}: was changed after the run"
        for name in files
        if name in recorded and _digest(directory / name) != recorded[name]
    ]
    return lines


def _parse(line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ReportError(f"{NAME}: `{line}` is no line of a manifest")
    return match[2], match[1]


def _files(directory: Path) -> list[str]:
    return sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and path.name != NAME
    )


def _no_plain_files(directory: Path) -> list[str]:
    return sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_symlink() or not (path.is_file() or path.is_dir())
    )


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
