"""report.md: the same answers for a terminal, a pull request or a ticket."""

from validation.judge.units import gpus
from validation.report import text
from validation.report.record import Report


def render(report: Report) -> str:
    """The report as GitHub Markdown."""
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
        f"- executed: {report.coverage.executed} of {report.coverage.steps} steps and invariants",
    ]
    if report.run.interrupted:
        lines.append(f"- interrupted: {report.run.interrupted}")
    for scenario in report.scenarios:
        lines += ["", f"## {scenario.id}: {scenario.title}", "", f"Source: {scenario.source}", ""]
        lines += [
            "| verdict | step | expected | oracle | actual | time to state |",
            "|---|---|---|---|---|---|",
        ]
        for step in report.steps:
            if step.scenario != scenario.id or step.kind != "step":
                continue
            first = step.convergence.first_ms if step.convergence else None
            lines.append(
                _row(
                    step.verdict,
                    "<br>".join([f"**{step.title}**", *text.reason_lines(step)]),
                    "<br>".join(text.expected_lines(step.expected)),
                    "<br>".join(text.oracle_lines(step.oracle)),
                    "<br>".join(text.actual_lines(step.actual, step.expected)),
                    text.seconds_or_dash(first),
                )
            )
        lines += ["", "| verdict | invariant | violations |", "|---|---|---|"]
        lines += [
            _row(step.verdict, step.title, "<br>".join(text.reason_lines(step)))
            for step in report.steps
            if step.scenario == scenario.id and step.kind == "invariant"
        ]
    lines += ["", "## Evictions", ""]
    if report.evictions:
        lines += ["| time | step | workload | project | GPUs | rule |", "|---|---|---|---|---|---|"]
        lines += [
            _row(text.clock(e.t_ms), e.step, e.workload, e.project, gpus(e.gpu_milli), e.message)
            for e in report.evictions
        ]
    else:
        lines.append("None.")
    if report.errata:
        lines += ["", "## Errata of the reference", ""]
        lines += [
            f"- **{e.id}** ({e.section}) {e.says} {e.contradicted_by} Asserted: {e.asserted}"
            for e in report.errata
        ]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
