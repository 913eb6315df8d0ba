"""report.html: one file without script or outside resource, for the screen and for paper."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from validation.judge.units import gpus
from validation.judge.verdict import Verdict
from validation.report import text
from validation.report.certificate import certificate
from validation.report.plots import charts
from validation.report.record import CheckResult, Report, RequirementResult

MAX_SHOWN = 500
"""Maximum number of checks and of evictions on the page; report.json has all."""
HOSTS_IN_A_TABLE = 10
"""Number of columns in a table of hosts by layer."""
MAX_HOSTS = 8
MAX_WAIVERS = 3
MAX_LIMITS = 10
"""Maximum number of limits on the certificate, which has one page. MAX_HOSTS and MAX_WAIVERS have the same purpose."""
MAX_WORDS = 100
"""Default maximum length of a text on the certificate."""
MAX_CHECKS = 50
"""Maximum number of checks that the page names for one requirement."""
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
    """Return the report as HTML."""
    shown = _shown(report.steps)
    steps_of: dict[str, list[CheckResult]] = {scenario.id: [] for scenario in report.scenarios}
    for step in shown:
        steps_of.setdefault(step.scenario, []).append(step)
    return _template().render(
        report=report,
        certificate=certificate(report),
        max_hosts=MAX_HOSTS,
        max_waivers=MAX_WAIVERS,
        max_limits=MAX_LIMITS,
        hosts_in_a_table=HOSTS_IN_A_TABLE,
        findings=_findings(report),
        contents=_contents(report),
        host_layers=list(dict.fromkeys(layer for row in report.hosts or () for layer in row.layers)),
        gpu_table=_gpu_table(report),
        open_scenarios={step.scenario for step in report.steps if _is_of_note(step)},
        steps_of=steps_of,
        shown=shown,
        evictions=report.volatile.evictions[:MAX_SHOWN],
        max_checks=MAX_CHECKS,
        parts=_by_part(report),
        excluded=[entry for entry in report.requirements if entry.not_applicable],
        charts=[(title, Markup(svg)) for title, svg in charts(report)],  # noqa: S704 - made by us, text escaped
    )


def _shown(steps: Sequence[CheckResult]) -> Sequence[CheckResult]:
    """Return all checks in their order, at most MAX_SHOWN. If there are more, passed checks are left out first."""
    if len(steps) <= MAX_SHOWN:
        return steps
    passed = [number for number, step in enumerate(steps) if step.verdict == Verdict.PASS]
    others = [number for number, step in enumerate(steps) if step.verdict != Verdict.PASS]
    return [steps[number] for number in sorted([*others, *passed][:MAX_SHOWN])]


def environment() -> Environment:
    """Return the Jinja environment of the pages.

    It escapes markup, control characters and invisible characters in all texts.
    """
    return Environment(
        loader=PackageLoader("validation.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: text.inert(value) if type(value) is str else value,
    )


@functools.cache
def _template() -> Template:
    pages = environment()
    pages.filters.update(
        gpus=gpus,
        seconds=text.seconds_or_dash,
        clock=text.clock,
        tone=lambda verdict: _GRAVITY.get(verdict, "fail"),
        brief=brief,
        why=lambda step: "why" if _is_of_note(step) else "soft",
    )
    pages.globals.update(
        allocation=text.allocation,
        figure=text.figure,
        expected_lines=text.expected_lines,
        oracle_lines=text.oracle_lines,
        actual_lines=text.actual_lines,
        reason_lines=text.reason_lines,
        check_lines=text.check_lines,
        evidence_line=text.evidence_line,
        use_lines=text.use_lines,
        beside_steps=text.BESIDE_STEPS,
        verdicts_of=lambda steps: Counter(step.verdict for step in steps if step.required),
    )
    return pages.get_template("report.html.j2")


def brief(words: str, most: int = MAX_WORDS) -> str:
    """Return the words, cut if they are longer than `most` characters.

    Example: `brief("abcdef", 4)` returns `'abc…'`.
    """
    return words if len(words) <= most else words[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _findings(report: Report) -> list[tuple[str, str, list[str]]]:
    """Return each fault or measurement of each layer, with the hosts that have it."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for row in report.hosts or ():
        for layer, cell in row.layers.items():
            if cell.words:
                hosts.setdefault((layer, cell.words.removeprefix(f"{row.host}: ")), []).append(row.host)
    return [(layer, words, names) for (layer, words), names in sorted(hosts.items())]


def _is_of_note(step: CheckResult) -> bool:
    """Return whether the page shows the details of the check, because it counts and did not pass."""
    return step.required and step.verdict not in {Verdict.PASS, Verdict.NOT_APPLICABLE}


def _contents(report: Report) -> list[tuple[str, str]]:
    """Return the anchors of the page with their titles."""
    excluded = any(entry.not_applicable for entry in report.requirements)
    sections = [
        ("certificate", "Certificate", True),
        ("hosts", "Hosts by layer", bool(report.hosts)),
        ("gpus", "GPUs by fact", any(row.gpus for row in report.hosts or ())),
        ("requirements", "Requirements", True),
        ("limits", "Requirements that do not apply", excluded),
        ("waivers", "Accepted deviations", bool(report.scope.waivers)),
        ("chart", "Appendix: GPUs per project over time", True),
        ("checks", "Appendix: checks", True),
        *((f"scenario-{number}", s.id, True) for number, s in enumerate(report.scenarios, 1)),
        ("evictions", "Appendix: evictions", True),
        ("errata", "Appendix: errata of the reference", True),
        ("mutants", "Appendix: defects that these checks were shown to notice", bool(report.mutants)),
        ("commands", "Appendix: commands", True),
        ("environment", "Appendix: environment", True),
    ]
    return [(anchor, title) for anchor, title, is_there in sections if is_there]


class _GpuTable(NamedTuple):
    """The facts of all GPUs: `same` has the facts that are equal on all GPUs, and `rows` the other facts of each GPU,
    by `columns`.
    """

    same: dict[str, str]
    columns: list[str]
    rows: list[tuple[str, int, dict[str, str]]]


def _gpu_table(report: Report) -> _GpuTable:
    rows = [(row.host, number, gpu) for row in report.hosts or () for number, gpu in enumerate(row.gpus)]
    names = list(dict.fromkeys(name for _, _, facts in rows for name in facts))
    values = {name: {facts.get(name, "") for _, _, facts in rows} for name in names}
    same = {name: next(iter(values[name])) for name in names if len(values[name]) == 1}
    return _GpuTable(same, [name for name in names if name not in same], rows)


def _by_part(report: Report) -> dict[str, list[RequirementResult]]:
    """Return the requirements that apply, by the part of the catalogue. The parts of the run's scope are first.

    Parts with a check that ran come next, then the others.
    """
    applying = [entry for entry in report.requirements if not entry.not_applicable]
    ran = {entry.id.partition(".")[0] for entry in applying if entry.verdict != "INCONCLUSIVE"}
    parts: dict[str, list[RequirementResult]] = {}
    for entry in sorted(
        applying, key=lambda entry: (not entry.in_part, entry.id.partition(".")[0] not in ran)
    ):
        parts.setdefault(entry.id.partition(".")[0], []).append(entry)
    return parts
