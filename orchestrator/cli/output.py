"""Prints results: tables for people and `awk`, JSON and YAML for programs."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from orchestrator.progress import printable

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS: Final = ("json", "yaml", "name", "wide")
UNKNOWN: Final = "-"
"""The cell for an unknown value, so that columns can be counted."""

_STATUS_COLOURS: Final = {
    "Pending": "yellow",
    "Suspended": "yellow",
    "Running": "green",
    "ContainerCreating": "green",
    "Terminating": "green",
    "ready": "green",
    "Succeeded": "blue",
    "TimedOut": "bright_black",
    "Unknown": "bright_black",
    "Deleted": "bright_black",
}
_CONTROL: Final = re.compile("[\x7f-\x9f]")
_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def output_option(*formats: str) -> Callable[[Function], Function]:
    """Return the `-o` option with these formats."""
    return click.option("-o", "--output", type=click.Choice(formats or FORMATS), help="Output format.")


def json_option() -> Callable[[Function], Function]:
    """Return the `--json` option."""
    return click.option("--json", "as_json", is_flag=True, default=None, help="Print JSON.")


def no_headers_option() -> Callable[[Function], Function]:
    """Return the `--no-headers` option."""
    return click.option("--no-headers", is_flag=True, default=None, help="Print the rows without the header.")


def show(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    output: str | None,
    no_headers: bool | None,
    records: Callable[[], Any],
    names: Iterable[str],
    title: str = "",
) -> None:
    """Print a list in the requested form; `title` is a line above the header of the table."""
    if output in ("json", "yaml"):
        click.echo(document(records(), output))
    elif output == "name":
        click.echo("".join(f"{printable(name)}\n" for name in names), nl=False)
    else:
        if title and not no_headers:
            click.echo(title)
        text = table(header, rows, with_header=not no_headers)
        click.echo(f"{text}\n" if text else "", nl=False)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, with_header: bool = True) -> str:
    """Return columns separated by two or more spaces; an empty cell is `-`, so that columns can be counted.

    The last column may be empty. Statuses have their colour on a terminal.
    """
    body = cells(rows)
    lines = [list(header), *body] if with_header else body
    widths = column_widths(lines)
    status = header.index("STATUS") if "STATUS" in header else None
    return "\n".join(
        line(cells_of_line, widths, None if with_header and place == 0 else status)
        for place, cells_of_line in enumerate(lines)
    )


def cells(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    """Return the rows without control characters, and with `-` in every empty cell except the last of a row."""
    return [[*(_cell(cell) or UNKNOWN for cell in row[:-1]), _cell(row[-1])] for row in rows]


def fact_lines(facts: Mapping[str, str]) -> str:
    """Return one line `TITLE: fact` for each fact."""
    return "\n".join(f"{title}: {_cell(fact)}" for title, fact in facts.items())


def column_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column in characters."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def line(row: Sequence[str], widths: Sequence[int], status: int | None = None) -> str:
    """Return one line of a table; the cell at `status` gets its colour."""
    padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    padded[-1] = padded[-1].rstrip()
    if status is not None and in_colour():
        word = row[status]
        colour = _STATUS_COLOURS.get(word.partition(",")[0], "red")
        padded[status] = click.style(word, fg=colour) + " " * (widths[status] - len(word))
    return "  ".join(padded).rstrip()


def in_colour() -> bool:
    """Return whether standard output is a terminal whose user has not asked for plain text (NO_COLOR)."""
    import os
    import sys

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def document(value: Any, form: str) -> str:
    """Return a value as JSON or YAML."""
    if form == "json":
        return _without_controls(json.dumps(value, indent=2, ensure_ascii=False))
    import yaml  # the import takes 20 ms, which other commands need not spend

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")


def age(seconds: int) -> str:
    """Return a duration in its largest unit: `11s`, `3m`, `5h`, `2d`, `1y`.

    Example: `age(7300)` returns `'2h'`.
    """
    for unit, unit_seconds in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= unit_seconds:
            return f"{seconds // unit_seconds}{unit}"
    return f"{max(0, seconds)}s"


def amount(number_bytes: int | None) -> str:
    """Return bytes as a quantity in the largest unit of which there is at least one: `503.6Gi`, `0`, or `-`.

    Example: `amount(540700000000)` returns `'503.6Gi'`.
    """
    if number_bytes is None:
        return UNKNOWN
    place = min(max(number_bytes, 1).bit_length() - 1, 60) // 10
    return f"{number_bytes / (1 << 10 * place):.1f}".removesuffix(".0") + _UNITS[place]


def cpus(number_milli: int | None) -> str:
    """Return thousandths of a CPU as a decimal number: `1.5`, or `-`.

    Example: `cpus(1500)` returns `'1.5'`.
    """
    return UNKNOWN if number_milli is None else f"{number_milli / 1000:.3f}".rstrip("0").rstrip(".")


def _without_controls(text: str) -> str:
    """Return the JSON text with escapes for the control characters that JSON allows in strings."""
    return _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _cell(text: str) -> str:
    return printable(" ".join(text.split()))
