"""The files of a report besides its record and its log. The log has the digest of each of them."""

from pathlib import Path
from typing import Final

from validation.errors import ReportError
from validation.report import files, log, manifest, renderings, statement

OWN: Final = frozenset({"report.json", log.NAME, *renderings.NAMES, manifest.NAME, statement.NAME})
"""Names of files whose digests cannot be in the log: files made from the log, and lists of all files."""


def digests(directory: Path) -> dict[str, str]:
    """Return the digest of each file of a run that is about to end, by its name. Raises ReportError."""
    return {name: files.digest(directory / name) for name in files.listed(directory)[0] if name not in OWN}


def problems(directory: Path, source: log.Log) -> list[str]:
    """Return a line for each file that the log does not have, or has with another digest. Raises ReportError."""
    closed = source.entries[-1]
    named = closed.files if isinstance(closed, log.Closed) else {}
    lines = [f"{name}: is no file beside a log" for name in named if name in OWN]
    try:
        present = digests(directory)
    except ReportError as error:
        return [str(error)]
    lines += [f"{name}: is missing: {log.NAME} names it" for name in named if name not in present]
    lines += [
        f"{name}: is not of this run: {log.NAME} does not name it" for name in present if name not in named
    ]
    lines += [
        f"{name}: is not as it was at the end of the run"
        for name, digest in present.items()
        if named.get(name, digest) != digest
    ]
    return lines
