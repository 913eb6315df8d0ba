"""Makes the record of a run from its log, and judges it. The log can be that of a killed run."""

from collections.abc import Iterable
from pathlib import Path

from validation.errors import ReportError
from validation.judge.check_verdict import Circumstances
from validation.report import log, record
from validation.report.rejudge import calculate_oracle, disagreements, judge_record

CUT = "the run was cut: its log has no end"


class CutRun(ReportError):
    """There is no record, because the run was killed before it wrote one."""

    exit_code = 3


def read_report(directory: Path) -> record.Report:
    """Return the record of a report directory.

    If a killed run has left no record, return the record that follows from its log.

    Raises ReportError.
    """
    if (directory / "report.json").exists():
        return record.read(directory)
    if not (directory / log.NAME).exists():
        raise CutRun(f"{directory}: no report: there is neither a record nor a log of a run in it")
    return assemble(log.read_log(directory))


def was_cut(directory: Path) -> bool:
    """Return whether a run was killed before it wrote its record."""
    return not (directory / "report.json").exists()


def rejudge(report: record.Report, source: log.Log) -> list[str]:
    """Judge the run again from its log. Return a line for each entry of the record that the log does not prove."""
    return disagreements(report, assemble(source))


def assemble(source: log.Log) -> record.Report:
    """Return the record that follows from the log. If the log was cut, its unfinished checks are ERROR.

    The result is the record in the log's first entry, changed in place.
    """
    opened, entries, events = source.opened, source.entries, source.events
    report = opened.report
    closed = next((entry for entry in entries if isinstance(entry, log.Closed)), None)
    began = {entry.check: entry.t_ms for entry in entries if isinstance(entry, log.CheckBegan)}
    ended = {entry.check: entry for entry in entries if isinstance(entry, log.CheckEnded)}
    report.steps = [result for result in report.steps if result.id in {*opened.selected, *began, *ended}]
    duration_ms = closed.duration_ms if closed else _last_ms(entries)
    report.interrupted = closed.interrupted if closed else CUT
    for result in report.steps:
        if result.id in ended:
            _take(result, ended[result.id])
        else:
            _leave_unfinished(result, began.get(result.id), duration_ms, report.interrupted, cut=not closed)
    _take_description(report, entries)
    report.volatile.events = record.EventFile(log.NAME, source.sha256, len(events))
    report.volatile.run.duration_ms = duration_ms
    if closed:
        report.volatile.run.ended, report.volatile.run.timings = closed.ended, closed.timings
    calculate_oracle(report)
    judge_record(report, events)
    return report


def _take(result: record.CheckResult, entry: log.CheckEnded) -> None:
    result.circumstances = entry.circumstances
    trace = result.volatile
    trace.started_ms, trace.ended_ms = entry.started_ms, entry.ended_ms
    trace.commands, trace.window = entry.commands, entry.window


def _leave_unfinished(
    result: record.CheckResult, began_ms: int | None, now_ms: int, why: str, *, cut: bool
) -> None:
    """Record that the check did not run, or did not finish.

    If the log was `cut`, this counts as a fault of the harness.
    """
    subject = "not run" if began_ms is None else "not finished"
    reason = f"{subject}: {why or 'the run ended'}"
    result.circumstances = Circumstances(fault=reason) if cut else Circumstances(unfinished=reason)
    if began_ms is not None:
        result.volatile.started_ms, result.volatile.ended_ms = began_ms, now_ms


def _take_description(report: record.Report, entries: Iterable[log.Entry]) -> None:
    by_id = {scenario.id: scenario for scenario in report.scenarios}
    scenario_of = {result.id: result.scenario for result in report.steps}
    for entry in entries:
        if isinstance(entry, log.Described):
            report.target, report.cluster = entry.target, entry.cluster
        elif isinstance(entry, log.ScenarioBegan):
            by_id[entry.scenario].volatile = record.ScenarioTrace(entry.t_ms, entry.t_ms)
        elif isinstance(entry, log.CheckEnded) and entry.ended_ms is not None:
            trace = by_id[scenario_of[entry.check]].volatile
            if trace.started_ms is not None:
                trace.ended_ms = entry.ended_ms


def _last_ms(entries: list[log.Entry]) -> int:
    """Return the time of the last entry that has a time."""
    for entry in reversed(entries):
        if isinstance(entry, log.Observed):
            return entry.event.t_ms
        if isinstance(entry, log.CheckBegan | log.ScenarioBegan):
            return entry.t_ms
        if isinstance(entry, log.CheckEnded) and entry.ended_ms is not None:
            return entry.ended_ms
    return 0
