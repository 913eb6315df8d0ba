"""The renderings of a record for people and other programs. All their content comes from the record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from validation.errors import ReportError
from validation.report import files, html, junit, markdown
from validation.report.record import Report

NAMES: Final = ("report.html", "report.md", "junit.xml")


def renderings(report: Report) -> dict[str, bytes]:
    """Return the content of each file by name."""
    contents = (html.render(report).encode(), markdown.render(report).encode(), junit.render(report))
    return dict(zip(NAMES, contents, strict=True))


def differing(directory: Path, report: Report) -> Iterator[str]:
    """Yield a line for each file that differs from the rendering of the record by this version of muster."""
    for name, content in renderings(report).items():
        try:
            found = files.read(directory / name)
        except ReportError as error:
            yield str(error)
            continue
        if found != content:
            yield f"{name}: does not show the content of report.json; `muster report render` writes it again"
