"""Compares texts and GPUs of the orchestrator's lists and pages, and writes the differences as sentences."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from validation.judge import units
from validation.judge.events import AnswerSeen, Event
from validation.judge.state import State

Key = tuple[str, str]
Row = Mapping[str, Any]
MAX_SHOWN: Final = 80
"""Maximum length of a printed value, in characters."""
MAX_GPUS: Final = 10**9
_NUMBER: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_NAME: Final = re.compile(r"[a-z0-9./-]{1,250}")


@dataclass(frozen=True, slots=True)
class View:
    """A list that the orchestrator shows: the command, the title of the check, and the comparison.

    `judged` has the fields that count, each with a function that returns the judged part of its value. `project` is the
    field with the project of a row. `is_one`: the output is one object and no list.
    `is_table`: it is a table for people.

    For a page, `page` is its address. `keep` returns the judged part of its rows, given the projects of the run. `past`
    replaces `compare`, and also compares the values of earlier times.
    """

    line: str
    title: str
    compare: Callable[[State, Sequence[Row]], Iterator[str]]
    judged: Mapping[str, Callable[[object], object]]
    project: str | None = None
    is_one: bool = False
    is_table: bool = False
    page: str = ""
    keep: Callable[[Sequence[Row], Collection[str]], list[dict[str, object]]] | None = None
    past: Callable[[Sequence[Event], AnswerSeen, State, Sequence[Row]], Iterator[str]] | None = None


def names(noun: str, shown: Sequence[str], actual: Sequence[str]) -> Iterator[str]:
    """Yield the missing, the unexpected and the duplicate names."""
    counts = Counter(shown)
    yield from (f"{noun} {name} is missing" for name in sorted(set(actual) - counts.keys()))
    yield from (f"there is no {noun} {plain(name)}" for name in sorted(counts.keys() - set(actual)))
    yield from (f"{noun} {plain(name)} is there twice" for name in sorted(counts) if counts[name] > 1)


def field_is(key: Key, row: Row, field: str, actual: str) -> Iterator[str]:
    """Yield the difference if that field is not this text."""
    if row.get(field) != actual:
        yield f"{spell(key)}: {field} is {short(row.get(field))}, not {short(actual)}"


def gpus_are(key: tuple[str, ...], row: Row, field: str, actual_milli: int) -> Iterator[str]:
    """Yield the difference if that field is not this number of GPUs."""
    if milli(row.get(field)) != actual_milli:
        yield f"{spell(key)}: {field} is {short(row.get(field))}, not {units.gpus(actual_milli)}"


def milli(gpus: object) -> int | None:
    """Return the thousandths of a number of GPUs, exactly; None if the text is not a number of GPUs.

    Example: `milli("0.125")` returns `125`.
    """
    if isinstance(gpus, bool) or not isinstance(gpus, str | int):
        return None
    number = _NUMBER.fullmatch(gpus if isinstance(gpus, str) else str(gpus) if abs(gpus) < MAX_GPUS else "")
    if number is None:
        return None
    thousandths, rest = (number[2] or "").ljust(3, "0")[:3], (number[2] or "")[3:]
    return int(number[1]) * 1000 + int(thousandths) if not rest.strip("0") else None


def text(row: Row, field: str) -> str:
    """Return the text of a field; empty if there is none."""
    value = row.get(field)
    return value if isinstance(value, str) else ""


def spell(key: tuple[str, ...]) -> str:
    """Return the subject of a difference in words: project and job, or a node."""
    return "/".join(key)


def plain(name: str) -> str:
    """Return a name for display: unchanged if it is valid, otherwise as a JSON string, so that it is safe on every
    page.
    """
    return name if _NAME.fullmatch(name) else short(name)


def short(value: object) -> str:
    """Return the value as JSON, cut if it is long."""
    try:
        written = json.dumps(value)
    except RecursionError:
        return "nested too deep"
    return written if len(written) <= MAX_SHOWN else f"{written[: MAX_SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}"


def scalar(value: object) -> object:
    """Return the value if it is a text or a whole number, else None.

    Example: `scalar(["a"])` returns `None`.
    """
    return value if isinstance(value, str | int) else None


def texts(values: object) -> object:
    """Return the list with None for values that are neither text nor number; None if the value is not a list."""
    return [scalar(value) for value in values] if isinstance(values, list) else None
