"""report.md: the same answers for a terminal, a pull request or a ticket."""

from validation.judge.units import gpus
from validation.report import text
from validation.report.record import CheckResult, Report


def render(report: Report) -> str:
    """The report as GitHub Markdown."""
    lines = _head(report)
    for scenario in report.scenarios:
        lines += ["", f"## {scenario.id}: {scenario.title}", "", f"Source: {scenario.source}", ""]
        lines += _checks([check for check in report.steps if check.scenario == scenario.id])
    lines += ["", "## Evictions", "", *_evictions(report)]
    if report.errata:
        lines += ["", "## Errata of the reference", ""]
        lines += [
            f"- **{e.id}** ({e.section}) {e.says} {e.contradicted_by} Asserted: {e.asserted}"
            for e in report.errata
        ]
    return "\n".join(lines) + "\n"


def _head(report: Report) -> list[str]:
    lines = [
        f"# GPU cluster validation: {report.verdict}",
        "",
        report.summary,
        "",
        f"- run: {report.run.id}, {report.run.started} to {report.run.ended}",
        (
            f"- target: {report.target.get('kind', 'unknown')}, {report.cluster.get('gpus', 0)} GPUs, "
            f"Kubernetes {report.cluster.get('kubernetes', 'unknown')}"
        ),
    ]
    if "operator" in report.target:
        lines.append(f"- operator: {report.target['operator']}")
    lines.append(f"- executed: {report.coverage.executed} of {report.coverage.steps} steps and invariants")
    if report.run.interrupted:
        lines.append(f"- interrupted: {report.run.interrupted}")
    return lines


def _checks(checks: list[CheckResult]) -> list[str]:
    """The steps of a scenario, then its invariants."""
    lines = ["| verdict | step | expected | oracle | actual | time to state |", "|---|---|---|---|---|---|"]
    lines += [
        _row(
            step.verdict,
            "<br>".join([f"**{step.title}**", *text.reason_lines(step)]),
            "<br>".join(text.expected_lines(step.expected)),
            "<br>".join(text.oracle_lines(step.oracle)),
            "<br>".join(text.actual_lines(step.actual, step.expected)),
            text.seconds_or_dash(step.convergence.first_ms if step.convergence else None),
        )
        for step in checks
        if step.kind == "step"
    ]
    lines += ["", "| verdict | invariant | violations |", "|---|---|---|"]
    lines += [
        _row(check.verdict, check.title, "<br>".join(text.reason_lines(check)))
        for check in checks
        if check.kind == "invariant"
    ]
    return lines


def _evictions(report: Report) -> list[str]:
    if not report.evictions:
        return ["None."]
    return [
        "| time | step | workload | project | GPUs | rule |",
        "|---|---|---|---|---|---|",
        *(
            _row(text.clock(e.t_ms), e.step, e.workload, e.project, gpus(e.gpu_milli), e.message)
            for e in report.evictions
        ),
    ]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
