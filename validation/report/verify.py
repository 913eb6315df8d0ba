"""Verifies a report directory: its files by the manifest, its verdicts by the record, the record by the log."""

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import MusterError
from validation.report import log, manifest, record, sources, statement
from validation.report.assemble import CUT, rejudge


@dataclass(slots=True)
class Verification:
    """What is wrong, a line each, and what could not be compared. `cut`: the run was killed, so nothing is proven."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: bool = False


def verify(directory: Path, key: Path | None = None) -> Verification:
    """Verify the report; with a key, also that it signed. Raises ReportError where there is nothing to verify."""
    if not (directory / manifest.NAME).exists() and (directory / log.NAME).exists():
        return Verification([f"{manifest.NAME}: is missing: {CUT}"], cut=True)
    lines = manifest.problems(directory, beside=[statement.NAME])
    if lines:
        return Verification(lines)
    try:
        report = record.read(directory)
        wrong = [*rejudge(report, log.read_log(directory)), *sources.differences(report)]
        lines = [*log.repeated_keys(directory), *(f"report.json: {line}" for line in wrong)]
        lines += statement.problems(directory, report, key)
    except MusterError as error:
        return Verification([str(error)])
    return Verification(lines, sources.notes(report))
