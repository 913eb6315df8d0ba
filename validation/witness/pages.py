"""Reads a page of `muster web` as a browser does, and returns its content as an array of objects.

No code of the program that made the page is used: the reader signs in with the form, and parses the HTML.
"""

import csv
import http.client
import io
import re
from datetime import datetime
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

from validation.witness.reader import ReadFailed

MAX_BYTES: Final = 16 << 20
_SECONDS: Final = 20
_COLUMNS: Final = {"NAME": "name", "PROJECT": "project", "NODE": "node"}
_FIELD: Final = re.compile(r'name="form_token" value="([^"]*)"')
Rows = list[dict[str, Any]]


class Browser:
    """Opens pages at a port of 127.0.0.1, and keeps the cookies."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cookies: dict[str, str] = {}

    def sign_in(self, token: str) -> None:
        """Send the form with the token. Raises ReadFailed if the sign-in fails."""
        _, form = self.open("/sign-in")
        match = _FIELD.search(form)
        if match is None:
            raise ReadFailed("the pages show no form to sign in")
        status, text = self._request("POST", "/sign-in", {"token": token, "form_token": match[1]})
        if status != 303:
            raise ReadFailed(f"signing in is answered with {status}: {_words(text)}")

    def open(self, path: str) -> tuple[int, str]:
        """Return the HTTP status and the text of a page. Raises ReadFailed."""
        return self._request("GET", path)

    def _request(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
        if fields is not None:
            headers |= {
                "Origin": f"http://127.0.0.1:{self._port}",
                "Content-Type": "application/x-www-form-urlencoded",
            }
        try:
            connection.request(method, path, urlencode(fields) if fields else None, headers)
            response = connection.getresponse()
            content = response.read(MAX_BYTES)
        except (http.client.HTTPException, OSError) as error:
            raise ReadFailed(f"{path} is not answered: {error}") from error
        finally:
            connection.close()
        for name, value in response.getheaders():
            if name.lower() == "set-cookie":
                cookie, _, worth = value.partition(";")[0].partition("=")
                self._cookies[cookie] = worth.strip('"')
        return response.status, content.decode(errors="replace")


def overview_rows(text: str) -> Rows:
    """Return the content of the overview: the state of the page, its figures, the shares of
    projects, and its tables.
    """
    page = _Overview()
    page.feed(text)
    page.close()
    return page.rows


def analytics_rows(points: str, summary: str) -> Rows:
    """Return the content of the analytics files: the GPUs of each project at each point of time, and the present GPUs
    and quota.
    """
    rows: Rows = []
    for row in csv.DictReader(io.StringIO(points)):
        at = _seconds(row.get("TIME") or "")
        rows.append(
            {
                "of": "point",
                "at": at,
                "project": row.get("PROJECT"),
                "GPUs ALLOCATED": row.get("GPUs ALLOCATED"),
            }
        )
    for row in csv.DictReader(io.StringIO(summary)):
        now = {name: row.get(name) for name in ("GPUs NOW", "QUOTA")}
        rows.append({"of": "summary", "project": row.get("PROJECT"), **now})
    return [row for row in rows if row["of"] == "summary" or row["GPUs ALLOCATED"]]


class _Overview(HTMLParser):
    """Reads the parts of the overview from its elements; `rows` has the parts in the order of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Rows = []
        self._texts: list[list[str]] = []
        """The text so far of each open element that is read."""
        self._kinds: list[str] = []
        self._state: dict[str, Any] = {}
        self._title = ""
        self._table = ""
        self._header: list[str] = []
        self._cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin to read an element, if its text or its attributes are part of the content."""
        attributes = dict(attrs)
        if tag == "p" and attributes.get("id") == "state":
            self._state = {"of": "state", "current": attributes.get("data-live") or ""}
            self.rows.append(self._state)
        elif tag == "div" and attributes.get("role") == "region":
            self._table, self._header = attributes.get("id") or "", []
        elif tag == "tr":
            self._cells = []
        kind = _kind(tag, attributes, in_table=bool(self._table))
        if kind:
            self._kinds.append(kind)
            self._texts.append([])

    def handle_data(self, data: str) -> None:
        """Add a part of the text of the innermost element that is read."""
        if self._texts:
            self._texts[-1].append(data)

    def handle_endtag(self, tag: str) -> None:
        """If the element is read, store its text."""
        if self._kinds and self._kinds[-1].partition(" ")[0] == tag:
            kind = self._kinds.pop()
            self._take(kind, " ".join("".join(self._texts.pop()).split()))
        if tag == "tr" and self._cells:
            self._take_row()
        elif tag == "table":
            self._table = ""

    def _take(self, kind: str, text: str) -> None:
        match kind:
            case "span at":
                self._state["at"] = _seconds(text)
            case "dt":
                self._title = text
            case "dd":
                self.rows.append({"of": "figure", "figure": self._title, "value": text})
            case "a project":
                self._title = text
            case "span share":
                self.rows.append({"of": "share", "project": self._title, "value": text})
            case "th column":
                self._header.append(_COLUMNS.get(text, text))
            case "th cell" | "td cell":
                self._cells.append(text)

    def _take_row(self) -> None:
        if len(self._cells) == len(self._header):
            self.rows.append({"of": self._table, **dict(zip(self._header, self._cells, strict=True))})
        self._cells = []


def _kind(tag: str, attributes: dict[str, str | None], *, in_table: bool) -> str:
    """Return the kind of the element if it is read; else ""."""
    is_column = attributes.get("scope") == "col"
    is_project = (attributes.get("href") or "").startswith("/projects/") and not in_table
    kinds = {
        "dt": "dt",
        "dd": "dd",
        "th": ("th column" if is_column else "th cell") if in_table else "",
        "td": "td cell" if in_table else "",
        "a": "a project" if is_project else "",
        "span": "span at" if attributes.get("id") == "at" else "" if attributes else "span share",
    }
    return kinds.get(tag, "")


def _seconds(text: str) -> int | None:
    """Return the seconds since the epoch of a time in the form of the pages; None if the text is not a time."""
    try:
        return int(datetime.fromisoformat(text.removesuffix(" UTC") + "+00:00").timestamp())
    except ValueError:
        return None


def _words(text: str) -> str:
    """Return the first 300 characters of the text of a page, without HTML tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())[:300]
