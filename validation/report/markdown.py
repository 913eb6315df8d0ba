"""Writes report.md: the content of the report for a terminal, a pull request or a ticket."""

import re
from collections.abc import Iterable
from typing import Final

from validation.judge.units import gpus, seconds
from validation.judge.waivers import Waiver
from validation.report import text
from validation.report.record import CheckResult, ImageRecord, Report

_MARKS: Final = re.compile(r"[\\`*_\[\]<>|&~#!@{}]|(?<=:)//|^[-+=]|^\d+(?=[.)](?:\s|$))|(?<=[wW]{3})\.")
"""The marks that begin markup, a link or a mention in GitHub's Markdown, and the number before "." of a list."""


def plain(words: str) -> str:
    """Return the words on one line, escaped so that no Markdown reader interprets them as markup."""
    return _MARKS.sub(lambda match: _escaped(match[0]), text.inert(words.strip()).strip())


def _escaped(mark: str) -> str:
    """Return the mark as a plain character.

    A backslash before a digit has no effect in Markdown, so it is put after a number: `1` becomes `1\\`.
    """
    return f"{mark}\\" if mark.isdigit() else "".join(f"\\{letter}" for letter in mark)


def render(report: Report) -> str:
    """Return the report as GitHub Markdown."""
    lines = [*_head(report), *_requirements(report)]
    for scenario in report.scenarios:
        scaled = f", scaled to {plain(str(scenario.size))} GPUs" if scenario.size else ""
        lines += [
            "",
            f"## {plain(scenario.id)}: {plain(scenario.title)}",
            "",
            f"Source: {plain(scenario.source)}{scaled}",
            "",
        ]
        lines += _checks([check for check in report.steps if check.scenario == scenario.id])
    lines += ["", "## Evictions", "", *_evictions(report)]
    if report.mutants:
        lines += ["", "## Appendix: defects that these checks were shown to notice", ""]
        lines += ["| defect | noticed by |", "|---|---|"]
        lines += [_row(plain(mutant.defect), plain(", ".join(mutant.killers))) for mutant in report.mutants]
    if report.errata:
        lines += ["", "## Errata of the reference", ""]
        lines += [
            f"- **{plain(e.id)}** ({plain(e.section)}) {plain(e.says)} {plain(e.contradicted_by)} "
            f"Asserted: {plain(e.asserted)}"
            for e in report.errata
        ]
    return "\n".join(lines) + "\n"


def _head(report: Report) -> list[str]:
    run, cluster = report.volatile.run, report.cluster
    facts = [
        ("run", f"{run.id}, {run.started} to {run.ended}"),
        ("profile", f"{report.scope.profile} ({report.scope.profile_title})"),
        ("target", report.target.get("kind", "unknown")),
        ("cluster", f"{cluster.get('gpus', 0)} GPUs, Kubernetes {cluster.get('kubernetes', 'unknown')}"),
        ("operator", report.target.get("operator", "")),
        ("programs of a lab", report.target.get("programs", "")),
        ("identity of the cluster", report.identity.sha256 if report.identity else ""),
        ("baseline", _baseline(report)),
        ("executed", f"{report.coverage.executed} of {report.coverage.required} checks"),
        *((f"image on {one.node}", pulled_words(one)) for one in report.volatile.images or ()),
        ("interrupted", report.interrupted),
        *(("not an acceptance", deviation) for deviation in report.scope.deviations),
        *(("waiver", waiver_words(waiver)) for waiver in report.scope.waivers),
    ]
    return [
        f"# Acceptance: {plain(report.acceptance)}",
        "",
        plain(report.headline),
        "",
        plain(report.summary),
        "",
        *(f"- {plain(name)}: {plain(words)}" for name, words in facts if words),
    ]


def _baseline(report: Report) -> str:
    """Return the earlier record with which the hosts were compared; empty without one."""
    one = report.scope.hosts.baseline if report.scope.hosts else None
    return f"{one.run}, {one.verdict}, manifest {one.manifest_sha256}" if one else ""


def waiver_words(waiver: Waiver) -> str:
    """Return the fact of a waiver, its owner and its last day."""
    host = f" of {waiver.host}" if waiver.host else ""
    return f"`{waiver.fact}`{host} in {waiver.id} until {waiver.expires} by {waiver.owner}: {waiver.reason}"


def pulled_words(pulled: ImageRecord) -> str:
    """Return a text about the pull of an image: its duration, or its problem."""
    if pulled.problem:
        return f"{pulled.image} not pulled: {pulled.problem}"
    return f"{pulled.image} after {seconds(pulled.took_ms)}, {pulled.digest or 'digest unknown'}"


def _requirements(report: Report) -> list[str]:
    """Return every requirement of the catalogue with its verdict."""
    return [
        "",
        "## Requirements",
        "",
        "| verdict | requirement | claim | number | source | why |",
        "|---|---|---|---|---|---|",
        *(
            _row(
                plain(entry.verdict) + ("" if entry.in_part else " (not asked for)"),
                plain(entry.id),
                plain(entry.claim),
                plain(text.figure(entry, report)) or text.DASH,
                plain(f"{entry.section}: {entry.source}"),
                plain(entry.reason or ", ".join(entry.checks)),
            )
            for entry in report.requirements
        ),
    ]


def _checks(checks: list[CheckResult]) -> list[str]:
    """Return the lines of the tables for the checks of one scenario.

    If the checks are layers of the hosts, there is one table of layers. Otherwise the tables have the steps, then the
    other kinds in the order of `BESIDE_STEPS`, then the invariants.
    """
    layers = [check for check in checks if check.kind == "layer"]
    if layers:
        lines = ["| verdict | layer of the hosts | measurement, or reason |", "|---|---|---|"]
        return lines + [
            _row(
                plain(check.verdict) if check.required else "no subject",
                plain(check.title),
                _lines(text.reason_lines(check)),
            )
            for check in layers
        ]
    lines = _steps([check for check in checks if check.kind == "step"])
    for kind, caption in text.BESIDE_STEPS.items():
        beside = [check for check in checks if check.kind == kind]
        if beside:
            lines += ["", f"| verdict | {caption} | measurement, or reason |", "|---|---|---|"]
        lines += [
            _row(plain(c.verdict), plain(c.title), _lines(text.reason_lines(c) + text.use_lines(c)))
            for c in beside
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
                plain(step.verdict),
                "<br>".join([f"**{plain(step.title)}**", *map(plain, text.reason_lines(step))]),
                _lines(text.expected_lines(step.expected)),
                _lines(text.oracle_lines(step.oracle)),
                _lines(text.actual_lines(step.actual, step.expected)),
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
                plain(check.verdict) if check.required else "no subject",
                plain(check.title),
                _lines(text.reason_lines(check)),
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
            _row(
                text.clock(e.t_ms),
                plain(e.step),
                plain(e.workload),
                plain(e.project),
                gpus(e.gpu_milli),
                plain(e.message),
            )
            for e in report.volatile.evictions
        ),
    ]


def _lines(lines: Iterable[str]) -> str:
    return "<br>".join(map(plain, lines))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
