"""report.html: one file without script or outside resource, for the screen and for paper."""

import functools
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from validation.judge.units import gpus
from validation.judge.verdict import Verdict
from validation.report import text
from validation.report.plots import charts
from validation.report.record import CheckResult, Report, RequirementResult

MAX_SHOWN = 500
"""How many checks and evictions the page has; report.json has all."""
MAX_CHECKS = 50
"""How many checks of one requirement it names."""
_GRAVITY = {
    "PASS": "pass",
    "WAIVED": "waived",
    "NOT_APPLICABLE": "neutral",
    "FAIL": "fail",
    "ERROR": "fail",
    "BLOCKED": "blocked",
    "INCONCLUSIVE": "blocked",
}


def render(report: Report) -> str:
    """The report as HTML."""
    shown = _shown(report.steps)
    steps_of: dict[str, list[CheckResult]] = {scenario.id: [] for scenario in report.scenarios}
    for step in shown:
        steps_of.setdefault(step.scenario, []).append(step)
    return _template().render(
        report=report,
        steps_of=steps_of,
        shown=shown,
        evictions=report.volatile.evictions[:MAX_SHOWN],
        max_checks=MAX_CHECKS,
        parts=_by_part(report),
        excluded=[entry for entry in report.requirements if entry.not_applicable],
        charts=[(title, Markup(svg)) for title, svg in charts(report)],  # noqa: S704 - made by us, text escaped
    )


def _shown(steps: Sequence[CheckResult]) -> Sequence[CheckResult]:
    """All checks; of very many those that did not pass first, as a page must stay one that can be opened."""
    if len(steps) <= MAX_SHOWN:
        return steps
    passed = [number for number, step in enumerate(steps) if step.verdict == Verdict.PASS]
    others = [number for number, step in enumerate(steps) if step.verdict != Verdict.PASS]
    return [steps[number] for number in sorted([*others, *passed][:MAX_SHOWN])]


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("validation.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        gpus=gpus, seconds=text.seconds_or_dash, clock=text.clock, tone=_GRAVITY.__getitem__
    )
    environment.globals.update(
        allocation=text.allocation,
        expected_lines=text.expected_lines,
        oracle_lines=text.oracle_lines,
        actual_lines=text.actual_lines,
        reason_lines=text.reason_lines,
        check_lines=text.check_lines,
        evidence_line=text.evidence_line,
        use_lines=text.use_lines,
        beside_steps=text.BESIDE_STEPS,
    )
    return environment.get_template("report.html.j2")


def _by_part(report: Report) -> dict[str, list[RequirementResult]]:
    """The requirements that apply, by the part of the catalogue: those first that the run is about, then what ran."""
    applying = [entry for entry in report.requirements if not entry.not_applicable]
    ran = {entry.id.partition(".")[0] for entry in applying if entry.verdict != "INCONCLUSIVE"}
    parts: dict[str, list[RequirementResult]] = {}
    for entry in sorted(
        applying, key=lambda entry: (not entry.in_part, entry.id.partition(".")[0] not in ran)
    ):
        parts.setdefault(entry.id.partition(".")[0], []).append(entry)
    return parts
