"""The parts of a page, and its inputs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from musterweb.history_model import History
from musterweb.person import Person
from musterweb.reports import Reports
from musterweb.sights import Sight
from musterweb.table import Table
from orchestrator.errors import UsageError

NAMES_OF_A_NOTE: Final = 20
"""Maximum number of omitted projects that a note names."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit of a person to a page: the parts of its path, its query, and the person's sight."""

    person: Person
    sight: Sight
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    now_us: int = field(default_factory=lambda: time.time_ns() // 1000)
    history: History | None = None
    reports: Reports | None = None

    def number(self, name: str, default: int = 1) -> int:
        """Return a number of the query that is at least 1. Raises UsageError."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text)):
            raise UsageError(f"{name} {text!r} is not possible: give a number from 1 up")
        return int(text)


@dataclass(frozen=True, slots=True)
class Page:
    """The title of a page, the template of its body with values, and the tables that it offers as files."""

    title: str
    template: str
    content: Mapping[str, Any]
    tables: tuple[Table, ...] = ()


def left_out(visit: Visit) -> list[str]:
    """Return a sentence that names the projects left out; [] if none is left out.

    Projects are left out if the person may see more projects than the pages read at once.
    """
    rights = visit.person.rights
    if rights is None or not rights.left_out:
        return []
    first, more = rights.left_out[:NAMES_OF_A_NOTE], len(rights.left_out) - NAMES_OF_A_NOTE
    others = ", ".join(first) + (f" and {more} more, in the order of their names" if more > 0 else "")
    shown, count = len(rights.scopes or ()), len(rights.left_out)
    sentence = (
        f"The jobs of {shown} projects are shown. You may see those of {count} more, which is too many at once: "
        f"{others}. To see one of these, sign in again and name it; with muster-viewer, bound in the whole "
        "cluster, you see all."
    )
    return [sentence]


def address(path: str, **query: str) -> str:
    """Return the path with a query of the values that are not empty.

    Example: `address("/jobs", project="a", status="")` returns `'/jobs?project=a'`.
    """
    chosen = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(chosen)}" if chosen else path


def job_address(project: str, name: str, part: str = "") -> str:
    """Return the address of a job's page.

    Example: `job_address("team-a", "train/1", "log")` returns `'/jobs/team-a/train%2F1/log'`.
    """
    parts = ["", "jobs", project, name, *([part] if part else [])]
    return "/".join(quote(word, safe="") for word in parts)


@dataclass(frozen=True, slots=True)
class Pager:
    """The rows of a long table that a page shows, and the addresses of the pages with the other rows."""

    start: int
    end: int
    count: int
    before: str
    after: str

    @classmethod
    def of(cls, visit: Visit, count: int, size: int, path: str, **query: str) -> "Pager":
        """Return the pager of the page number in the query, or of the last page if the number is too high."""
        number = min(visit.number("page"), max(1, -(-count // size)))
        start, end = (number - 1) * size, min(count, number * size)
        return cls(
            start,
            end,
            count,
            address(path, **query, page=str(number - 1)) if number > 1 else "",
            address(path, **query, page=str(number + 1)) if end < count else "",
        )
