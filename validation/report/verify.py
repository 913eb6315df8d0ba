"""Verifies a report directory: its files against the manifest, its verdicts against the record, the record against the
log.
"""

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import MusterError
from validation.errors import ReportError
from validation.report import (
    beside,
    chronology,
    log,
    manifest,
    record,
    redact,
    renderings,
    sources,
    statement,
)
from validation.report.assemble import CUT, rejudge
from validation.report.files import untrusted


@dataclass(slots=True)
class Verification:
    """The result of a verification: a line for each problem, and notes on sources that were not compared, by name.

    `cut`: the run was killed, so nothing is proven. `is_compared` is false if this installation has other sources than
    the record.
    """

    problems: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    is_compared: bool = True


def verify(directory: Path, *keys: Path) -> Verification:
    """Verify the report, and that each of the keys signed it. Raises ReportError if there is nothing to verify."""
    if not (directory / manifest.NAME).exists() and (directory / log.NAME).exists():
        return Verification([f"{manifest.NAME}: is missing: {CUT}"], cut=True)
    lines = manifest.problems(directory, beside=[statement.NAME])
    if lines:
        return Verification(lines)
    try:
        with untrusted("report.json"):
            return _verify_content(directory, *keys)
    except MusterError as error:
        return Verification([str(error)])


def _verify_content(directory: Path, *keys: Path) -> Verification:
    report = record.read(directory)
    if lines := statement.problems(directory, report, *keys):
        return Verification(lines)  # stop here: the other files belong to another report than the signed one
    source = log.read_log(directory)
    if lines := chronology.endless(source):
        return Verification(lines)
    lines = [*log.other_forms(directory), *chronology.problems(source), *beside.problems(directory, source)]
    compared = sources.compare(source.opened.report)
    if report.redacted:
        lines += redact.clear_words(directory)
    lines += [f"report.json: {line}" for line in [*_rejudge(report, source), *compared.problems]]
    if not lines and compared.is_whole:  # another version may render a record differently
        lines += renderings.differing(directory, report)
    return Verification(lines, compared.notes, is_compared=compared.is_whole)


def _rejudge(report: record.Report, source: log.Log) -> list[str]:
    """Return a line for each entry that the log does not prove, or one line if the run cannot be judged again."""
    try:
        with untrusted(log.NAME):
            return rejudge(report, source)
    except ReportError as error:
        return [str(error)]
