"""Tables of the command line, shown on pages and offered as files."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.cli.output import UNKNOWN, cells

_FORMULA: Final = re.compile(r"((?:^|;) *)(?=[-=+@\uff1d\uff0b\uff0d\uff20])")
"""Positions at which a spreadsheet can begin a formula: the beginning of a cell, and after a semicolon, the separator
of cells in many locales. The last four characters are the full-width forms.
"""

Link = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the command line. `link` returns the address that a row with these cells links to."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    link: Link | None = None
    csv: str = ""
    empty: str = "Nothing."
    note: str = ""

    @property
    def lines(self) -> list[tuple[str, list[str]]]:
        """The link of each row ("" for none), and its cells as a terminal shows them."""
        links = [self.link(row) if self.link else "" for row in self.rows]
        return list(zip(links, cells(self.rows), strict=True))


def columns(header: Sequence[str], row: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return the cells of the chosen columns, in that order."""
    by_title = dict(zip(header, row, strict=True))
    return [by_title[title] for title in chosen]


def csv_text(table: Table) -> str:
    """Return the table as CSV. No spreadsheet interprets a cell as a formula."""
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(table.header)
    writer.writerows([_inert(cell) for cell in row] for row in table.rows)
    return output.getvalue()


def _inert(cell: str) -> str:
    """Return the cell without control characters, with formulas disabled."""
    if cell == UNKNOWN:
        return ""
    text = cell
    if not cell.isprintable():
        text = "".join(character if character.isprintable() else " " for character in cell)
    return _FORMULA.sub(r"\1'", text)
