"""Renders a report for the terminal: the verdict, and the checks that prevent a PASS."""

from collections import Counter

from orchestrator.progress import printable
from validation.judge.verdict import Verdict
from validation.report import text
from validation.report.record import Report

_BAD = ("ERROR", "FAIL", "BLOCKED", "INCONCLUSIVE", "WAIVED")


def render(report: Report) -> str:
    """Return the headline, the requirements by part, and every check that did not pass, the gravest first."""
    run = report.volatile.run
    ended = f"to {run.ended}" if run.ended else "and has no end"
    lines = [
        report.headline,
        report.summary,
        "",
        f"run {run.id}, {run.started} {ended}, profile {report.scope.profile}",
    ]
    parts: dict[str, Counter[str]] = {}
    for entry in report.requirements:
        parts.setdefault(entry.id.partition(".")[0], Counter())[entry.verdict] += 1
    width = max((len(part) for part in parts), default=0)
    lines += ["", "requirements"]
    lines += [
        f"  {part:<{width}}  "
        + ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        for part, counts in parts.items()
    ]
    passed = sum(step.verdict == Verdict.PASS for step in report.steps)
    lines += ["", f"checks: {passed} of {report.coverage.required} passed"]
    for verdict in _BAD:
        for step in report.steps:
            if step.verdict == verdict and step.required:
                lines.append(f"  {verdict}  {step.id}: {step.title}")
                lines += [f"      {line}" for line in text.reason_lines(step)]
    return "\n".join(printable(line.replace(text.TOGETHER, " ")) for line in lines) + "\n"
