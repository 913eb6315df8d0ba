"""Records of acceptance tests: the directories of `muster validate` in one folder.

A record has the jobs of all teams, so the pages show it only to people who may see all jobs and nodes. They show the
verdict in the record; `muster report verify` proves that the record was not changed.
"""

from pathlib import Path
from typing import Final

import msgspec

from musterweb.errors import NotThere

MAX_REPORT_BYTES: Final = 64 << 20
FILE: Final = "report.json"
SCHEMA_VERSION: Final = 3


class _Narrow(msgspec.Struct, frozen=True, rename="camel"):
    """Base class of the parts of a record, with only the fields that pages show (version 3 in
    docs/reference/record.md).
    """


class _Run(_Narrow, frozen=True):
    started: str


class _Trace(_Narrow, frozen=True):
    run: _Run


class _Scope(_Narrow, frozen=True):
    profile: str
    profile_title: str


class _Coverage(_Narrow, frozen=True):
    required: int
    by_verdict: dict[str, int]


class _Requirement(_Narrow, frozen=True):
    id: str
    verdict: str
    claim: str
    source: str
    reason: str = ""
    not_applicable: str = ""


class _Violation(_Narrow, frozen=True):
    message: str


class _CheckTrace(_Narrow, frozen=True):
    violations: list[_Violation] = []


class Check(_Narrow, frozen=True):
    """A check of the run and its verdict."""

    id: str
    title: str
    verdict: str
    reason: str = ""
    differences: list[str] = []
    volatile: _CheckTrace = _CheckTrace()


class Report(_Narrow, frozen=True):
    """The record of one run."""

    schema_version: int
    verdict: str
    acceptance: str
    headline: str
    summary: str
    scope: _Scope
    coverage: _Coverage
    requirements: list[_Requirement]
    steps: list[Check]
    volatile: _Trace


class Reports:
    """The records in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Return the names of the directories with a record, the newest first."""
        try:
            entries = [
                ((entry / FILE).stat().st_mtime_ns, entry.name)
                for entry in self._folder.iterdir()
                if _is_record(entry)
            ]
        except OSError as error:
            raise NotThere(f"the folder of reports cannot be read: {error.strerror}") from error
        return [name for _, name in sorted(entries, reverse=True)]

    def read(self, name: str) -> Report:
        """Return a record. Raises NotThere if no record has this name, or if it cannot be read."""
        path = self._folder / name
        # a name is one directory in the folder: not a path, and not a link to another directory
        try:
            if path.parent != self._folder or name in ("", ".", "..") or not _is_record(path):
                raise NotThere(f"there is no report {name}")
            if (path / FILE).stat().st_size > MAX_REPORT_BYTES:
                raise NotThere(f"the report {name} is larger than {MAX_REPORT_BYTES >> 20} MiB")
            report = msgspec.json.decode((path / FILE).read_bytes(), type=Report)
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise NotThere(f"the report {name} cannot be read: {error}") from error
        if report.schema_version != SCHEMA_VERSION:
            raise NotThere(f"the report {name} is of version {report.schema_version}, not {SCHEMA_VERSION}")
        return report


def _is_record(directory: Path) -> bool:
    file = directory / FILE
    return directory.is_dir() and not directory.is_symlink() and file.is_file() and not file.is_symlink()
