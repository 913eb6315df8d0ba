"""How results are printed: tables for people and `awk`, JSON and YAML for programs."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS: Final = ("json", "yaml", "name", "wide")


def output_option(*formats: str) -> Callable[[Function], Function]:
    """Return the `-o` option with these formats."""
    return click.option(
        "-o", "--output", type=click.Choice(formats or FORMATS), help="Another form of output."
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, with_header: bool = True) -> str:
    """Return columns separated by two or more spaces; an empty cell is `-`, so that columns can be counted.

    The last column may be empty.
    """
    cells = [[*(_cell(cell) for cell in row[:-1]), " ".join(row[-1].split())] for row in rows]
    lines = [list(header), *cells] if with_header else cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def document(value: Any, form: str) -> str:
    """Return a value as JSON or YAML."""
    if form == "json":
        return json.dumps(value, indent=2, ensure_ascii=False)
    import yaml  # costs 20 ms that other commands need not pay

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")


def age(seconds: int) -> str:
    """Return a duration in its largest unit: `11s`, `3m`, `5h`, `2d`, `1y`."""
    for unit, unit_seconds in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= unit_seconds:
            return f"{seconds // unit_seconds}{unit}"
    return f"{max(0, seconds)}s"


def _cell(text: str) -> str:
    return " ".join(text.split()) or "-"
