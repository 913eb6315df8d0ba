"""manifest.sha256: the digest of every file of a report, in the form of `sha256sum --check`, and at the end the digest
of these lines.
"""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from validation.errors import ReportError
from validation.report import files

NAME = "manifest.sha256"
MAX_BYTES: Final = 4 << 20
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_OWN = "# sha256 of the lines above: "


def render(directory: Path) -> bytes:
    """Return the manifest of the present files of the directory.

    Raises ReportError for a name that does not fit on a line.
    """
    names = [name for name in files.listed(directory)[0] if name != NAME]
    for name in names:
        if not name.isprintable():
            raise ReportError(f"{directory}: {name}: a file of a report has no such name")
    lines = "".join(f"{files.digest(directory / name)}  {name}\n" for name in names)
    return f"{lines}{_OWN}{hashlib.sha256(lines.encode()).hexdigest()}\n".encode()


def digest(directory: Path) -> str:
    """Return the digest of the manifest, which identifies the whole report. Raises ReportError."""
    return files.digest(directory / NAME)


def problems(directory: Path, beside: Collection[str] = ()) -> list[str]:
    """Return a line for each file that differs from the manifest, beginning with the file's name. Raises ReportError.

    Files in `beside` need not be in the manifest.
    """
    plain, others = files.listed(directory)
    if others:
        return [f"{name}: is no plain file, so its target can change" for name in others]
    content = files.read(directory / NAME, MAX_BYTES)
    body, own, digest = content.rpartition(_OWN.encode())
    if not own or digest != hashlib.sha256(body).hexdigest().encode() + b"\n":
        return [f"{NAME}: was changed after the run"]
    recorded = _parse(body)
    present = [name for name in plain if name != NAME and (name not in beside or name in recorded)]
    lines = [f"{name}: is missing" for name in recorded if name not in present]
    lines += [f"{name}: is not of this report" for name in present if name not in recorded]
    lines += [
        f"{name}: was changed after the run"
        for name in present
        if name in recorded and files.digest(directory / name) != recorded[name]
    ]
    return lines


def _parse(body: bytes) -> dict[str, str]:
    """Return the digest of each file. Raises ReportError if a line has another form, or a file is named twice."""
    try:
        lines = body.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ReportError(f"{NAME}: is not UTF-8") from error
    recorded: dict[str, str] = {}
    for line in lines[:-1]:
        match = _LINE.fullmatch(line)
        if match is None or not match[2].isprintable():
            raise ReportError(f"{NAME}: `{line[:200]}` is no line of a manifest")
        if match[2] in recorded:
            raise ReportError(f"{NAME}: names {match[2]} twice")
        recorded[match[2]] = match[1]
    if lines[-1]:
        raise ReportError(f"{NAME}: its last line is cut")
    return recorded
