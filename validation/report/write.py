"""Writes the report directory. Each file is written atomically."""

import os
import tempfile
from pathlib import Path

from validation.errors import ReportError
from validation.report import manifest
from validation.report.record import Report, decode, encode
from validation.report.renderings import NAMES, renderings
from validation.report.statement import NAME as STATEMENT

_WRITTEN = ("report.json", *NAMES)


def write(report: Report, directory: Path) -> Path:
    """Write report.json, its renderings and the manifest of all files into `directory`; return `directory`.

    Raises ReportError.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        content = encode(report)
        _replace(directory / "report.json", content)
        # Decoded from the file's bytes, so that keys are sorted as in the record that `verify` reads.
        render(decode(content), directory)
        # An earlier run can have left a statement, which is not about this report.
        (directory / STATEMENT).unlink(missing_ok=True)
        _replace(directory / manifest.NAME, manifest.render(directory))
    except OSError as error:
        raise ReportError(f"{directory}: the report cannot be written: {error.strerror}") from error
    return directory


def withdraw(directory: Path) -> None:
    """Remove the files of an earlier run from the directory, if there are any. Raises ReportError."""
    try:
        for name in (*_WRITTEN, STATEMENT, manifest.NAME):
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise ReportError(f"{directory}: the report cannot be written: {error.strerror}") from error


def render_into(report: Report, directory: Path) -> None:
    """Write the renderings into a directory, which is created if it does not exist. Raises ReportError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        render(report, directory)
    except OSError as error:
        raise ReportError(f"{directory}: the report cannot be written: {error.strerror}") from error


def render(report: Report, directory: Path) -> None:
    """Write the renderings of the record: HTML, Markdown, JUnit XML."""
    for name, content in renderings(report).items():
        _replace(directory / name, content)


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp makes it private, a report is there to be read
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
