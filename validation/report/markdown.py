"""report.md: the same answers for a terminal, a pull request or a ticket."""

from validation.judge.units import gpus, seconds
from validation.report import text
from validation.report.record import CheckResult, ImageRecord, Report


def render(report: Report) -> str:
    """The report as GitHub Markdown."""
    lines = [*_head(report), *_requirements(report)]
    for scenario in report.scenarios:
        scaled = f", scaled to {scenario.size} GPUs" if scenario.size else ""
        lines += ["", f"## {scenario.id}: {scenario.title}", "", f"Source: {scenario.source}{scaled}", ""]
        lines += _checks([check for check in report.steps if check.scenario == scenario.id])
    lines += ["", "## Evictions", "", *_evictions(report)]
    if report.mutants:
        lines += ["", "## Appendix: defects that these checks were shown to notice", ""]
        lines += ["| defect | noticed by |", "|---|---|"]
        lines += [_row(mutant.defect, ", ".join(mutant.killers)) for mutant in report.mutants]
    if report.errata:
        lines += ["", "## Errata of the reference", ""]
        lines += [
            f"- **{e.id}** ({e.section}) {e.says} {e.contradicted_by} Asserted: {e.asserted}"
            for e in report.errata
        ]
    return "\n".join(lines) + "\n"


def _head(report: Report) -> list[str]:
    run = report.volatile.run
    lines = [
        f"# GPU cluster validation: {report.headline}",
        "",
        report.summary,
        "",
        f"- run: {run.id}, {run.started} to {run.ended}",
        f"- profile: {report.scope.profile} ({report.scope.profile_title})",
        (
            f"- target: {report.target.get('kind', 'unknown')}, {report.cluster.get('gpus', 0)} GPUs, "
            f"Kubernetes {report.cluster.get('kubernetes', 'unknown')}"
        ),
    ]
    if "operator" in report.target:
        lines.append(f"- operator: {report.target['operator']}")
    if "programs" in report.target:
        lines.append(f"- programs of a lab: {report.target['programs']}")
    lines.append(f"- executed: {report.coverage.executed} of {report.coverage.required} checks")
    lines += [f"- image on {one.node}: {pulled_words(one)}" for one in report.volatile.images or ()]
    if report.interrupted:
        lines.append(f"- interrupted: {report.interrupted}")
    lines += [f"- not an acceptance: {deviation}" for deviation in report.scope.deviations]
    lines += [
        f"- WAIVED until {waiver.expires} by {waiver.owner}: {waiver.id}: {waiver.reason}"
        for waiver in report.scope.waivers
    ]
    return lines


def pulled_words(pulled: ImageRecord) -> str:
    """How a node got an image, or why it did not."""
    if pulled.problem:
        return f"{pulled.image} not pulled: {pulled.problem}"
    return f"{pulled.image} after {seconds(pulled.took_ms)}, {pulled.digest or 'digest unknown'}"


def _requirements(report: Report) -> list[str]:
    """Every requirement of the catalogue, with the verdict on it."""
    return [
        "",
        "## Requirements",
        "",
        "| verdict | requirement | claim | number | source | why |",
        "|---|---|---|---|---|---|",
        *(
            _row(
                entry.verdict + ("" if entry.in_part else " (not asked for)"),
                entry.id,
                entry.claim,
                entry.number or text.DASH,
                f"{entry.section}: {entry.source}",
                entry.reason or ", ".join(entry.checks),
            )
            for entry in report.requirements
        ),
    ]


def _checks(checks: list[CheckResult]) -> list[str]:
    """The layers of the hosts; or the steps of a scenario, what was shown, what a job left, its invariants."""
    layers = [check for check in checks if check.kind == "layer"]
    if layers:
        lines = ["| verdict | layer of the hosts | what was measured, or why |", "|---|---|---|"]
        return lines + [
            _row(
                check.verdict if check.required else "no subject",
                check.title,
                "<br>".join(text.reason_lines(check)),
            )
            for check in layers
        ]
    lines = _steps([check for check in checks if check.kind == "step"])
    for kind, caption in text.BESIDE_STEPS.items():
        beside = [check for check in checks if check.kind == kind]
        if beside:
            lines += ["", f"| verdict | {caption} | what was measured, or why |", "|---|---|---|"]
        lines += [
            _row(c.verdict, c.title, "<br>".join(text.reason_lines(c) + text.use_lines(c))) for c in beside
        ]
    return lines + _invariants([check for check in checks if check.kind == "invariant"])


def _steps(steps: list[CheckResult]) -> list[str]:
    if not steps:
        return []
    return [
        "| verdict | step | expected | oracle | actual | time to state |",
        "|---|---|---|---|---|---|",
        *(
            _row(
                step.verdict,
                "<br>".join([f"**{step.title}**", *text.reason_lines(step)]),
                "<br>".join(text.expected_lines(step.expected)),
                "<br>".join(text.oracle_lines(step.oracle)),
                "<br>".join(text.actual_lines(step.actual, step.expected)),
                text.seconds_or_dash(
                    step.volatile.convergence.first_ms if step.volatile.convergence else None
                ),
            )
            for step in steps
        ),
    ]


def _invariants(invariants: list[CheckResult]) -> list[str]:
    if not invariants:
        return []
    return [
        "",
        "| verdict | invariant | violations |",
        "|---|---|---|",
        *(
            _row(
                check.verdict if check.required else "no subject",
                check.title,
                "<br>".join(text.reason_lines(check)),
            )
            for check in invariants
        ),
    ]


def _evictions(report: Report) -> list[str]:
    if not report.volatile.evictions:
        return ["None."]
    return [
        "| time | step | workload | project | GPUs | rule |",
        "|---|---|---|---|---|---|",
        *(
            _row(text.clock(e.t_ms), e.step, e.workload, e.project, gpus(e.gpu_milli), e.message)
            for e in report.volatile.evictions
        ),
    ]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
