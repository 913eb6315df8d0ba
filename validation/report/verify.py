"""Verifies a report directory: its files by the manifest, its verdicts by the record, the record by the log."""

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import MusterError
from validation.report import log, manifest, record, sources, statement
from validation.report.assemble import CUT, assemble
from validation.report.rejudge import disagreements, rejudge


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
        lines = [f"report.json: {line}" for line in _wrong(directory, report)]
        lines += statement.problems(directory, report, key)
    except MusterError as error:
        return Verification([str(error)])
    return Verification(lines, sources.notes(report))


def _wrong(directory: Path, report: record.Report) -> list[str]:
    lines = [*rejudge(report), *sources.differences(report)]
    if lines:
        return lines
    return [f"{line} from {log.NAME}" for line in disagreements(report, assemble(log.read_log(directory)))]
