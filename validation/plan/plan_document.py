"""Writes the plan of a run as a document to sign: its requirements, the reason for each that does not apply, and its
checks.
"""

import shlex
from collections.abc import Sequence

from validation.judge.api.api_checks import API_CHECKS
from validation.judge.api.api_request import ApiCheck
from validation.judge.api.containers import claim_path
from validation.judge.evidence import Evidence
from validation.judge.hosts.host_layer import HostSite
from validation.judge.training.training_result import LEAST_BATCHES
from validation.judge.units import spell
from validation.judge.views.lists import view_of
from validation.layers.checks import LAYERS, Layer
from validation.layers.tools import TOOLS
from validation.plan.acceptance import Acceptance
from validation.planned_checks import Check
from validation.report.text import expected_lines
from validation.scenario.images import NO_MAP, ImageMap, images_of


def document(
    acceptance: Acceptance, checks: Sequence[Check], site: HostSite | None = None, images: ImageMap = NO_MAP
) -> str:
    """Return the plan as Markdown.

    `site` has the declared hosts, None without a site. `images` has the names of images at the site.
    """
    parts = ", ".join(acceptance.parts) or "the whole catalogue"
    lines = [
        "# Plan of the acceptance test",
        "",
        f"- profile: {acceptance.profile.id} ({acceptance.profile.title})",
        f"- about: {parts}",
        f"- catalogue: {len(acceptance.catalogue.requirements)} requirements, sha256 {acceptance.catalogue.sha256}",
        f"- checks: {len(checks)}",
        *_sizes(checks),
        *_images(checks, images),
        *_requirements(acceptance, {check.id for check in checks if _runs(check, site)}),
        *_checks(checks, site),
        "## Signature",
        "",
        "For the customer: ______________________   For the supplier: ______________________   Date: ____________",
    ]
    return "\n".join(lines)


def _sizes(checks: Sequence[Check]) -> list[str]:
    sizes = sorted({check.scenario.size for check in checks if check.scenario.size})
    return [f"- scenarios are scaled to {size} GPUs (nodes, and GPUs of each)" for size in sizes]


def _images(checks: Sequence[Check], images: ImageMap) -> list[str]:
    """Return the images that the scenarios need, with their names at the site.

    The commands in the plan have the names of the scenarios, so the document lists the site's names.
    """
    names = images_of({check.scenario.id: check.scenario for check in checks}.values())
    lines = [name if images.image(name) == name else f"{images.image(name)} for {name}" for name in names]
    pulled = "; on a cluster every node with GPUs pulls each before a step is timed"
    return [f"- images: {', '.join(lines)}{pulled}"] if lines else []


def _requirements(acceptance: Acceptance, check_ids: set[str]) -> list[str]:
    """Return the requirements that the run can prove, those that stay open, and those that do not apply."""
    proven, left_out, excluded = [], [], []
    for requirement, facts in zip(acceptance.catalogue.requirements, acceptance.facts, strict=True):
        number = f" ({requirement.number})" if requirement.number else ""
        line = f"- {requirement.id}: {requirement.claim}{number} [{requirement.section}]"
        missing = [check for check in facts.checks if check not in check_ids]
        if facts.not_applicable:
            excluded.append(f"{line}: {facts.not_applicable}")
        elif facts.checks and not missing and facts.in_part:
            proven.append(line)
        elif not facts.checks:
            left_out.append(f"{line}: no check of it exists yet")
        else:
            left_out.append(f"{line}: not in this run")
    return [
        "",
        f"## Requirements that this run can prove ({len(proven)})",
        "",
        *proven,
        "",
        f"## Requirements that stay open ({len(left_out)})",
        "",
        *left_out,
        "",
        f"## Requirements that do not apply ({len(excluded)})",
        "",
        *excluded,
        "",
    ]


def _checks(checks: Sequence[Check], site: HostSite | None) -> list[str]:
    lines = ["## Checks, in this order", ""]
    for check in checks:
        lines += [f"### {check.id}", "", check.title, ""]
        if check.scenario.training is not None and check.training:
            job, within_ms = check.scenario.training.job, check.scenario.training.within_ms
            lines += [
                f"- the result of {job.workload} in {job.project}, on {job.devices} {job.device}",
                f"- within {within_ms / 1000:g} s",
                f"- least evidence: {_evidence(check.scenario.least)}, and {LEAST_BATCHES} batches",
                "",
            ]
            continue
        if check.view:
            least = _evidence(check.scenario.least)
            lines += [f"    $ {view_of(check.view).line}", "", f"- least evidence: {least}", ""]
            continue
        if check.scenario.utilization is not None and check.utilization:
            standard = check.scenario.utilization.standard
            lines += [
                f"- source: {check.scenario.utilization.source}",
                f"- for {spell(standard.window_ms // 1000)}, after {spell(standard.warm_up_ms // 1000)} of warm-up",
                f"- at least {standard.minimum_percent} %, of each GPU {standard.minimum_percent_of_a_gpu} %",
                f"- least evidence: {_evidence(check.scenario.utilization.least)}",
                "",
            ]
            continue
        if check.api:
            lines += _api(API_CHECKS[check.api], check.scenario.least)
            continue
        if check.layer:
            lines += _layer(LAYERS[check.layer], site)
            continue
        if check.step is None:
            lines += [f"- least evidence: {_evidence(check.scenario.least)}, and a subject", ""]
            continue
        if check.step is check.scenario.steps[0]:
            claims = check.scenario.scenario.claims
            lines += [
                f"    POST {claim_path(project, '')} ({', '.join(names)})"
                for project, names in claims.items()
            ]
        if check.step.default_project:
            lines.append(f"    $ muster project set {check.step.default_project}")
        lines += [f"    $ {shlex.join(shlex.split(command.line))}" for command in check.step.commands]
        lines += [f"    $ {line}    # must be refused" for line in check.step.refused]
        lines += [f"    # {line}" for line in check.step.upkeep.lines]
        lines += [
            "",
            f"- source: {check.step.source}",
            f"- expected: {'; '.join(expected_lines(check.step.expectation))}",
            f"- within {check.step.within_ms / 1000:g} s, then for {check.step.hold_ms / 1000:g} s",
            f"- least evidence: {_evidence(check.step.least)}",
            "",
        ]
    return lines


def _api(check: ApiCheck, least: Evidence) -> list[str]:
    """Return the requests of a check, their contents, and the deletions of the created objects."""
    lines = [f"- source: {check.source}", ""]
    for request in check.requests:
        lines.append(f"    {request.method} {request.path}")
        lines += [f"        {request.body}"] if request.body else []
        if request.within_ms:
            lines[-1] += f"    # for {spell(request.within_ms // 1000)} at most"
    created = [request.created for request in check.requests if request.created]
    lines += [f"    DELETE {path}" for path in reversed(created)]
    return [*lines, "", f"- least evidence: {_evidence(least)}", ""]


def _layer(layer: Layer, site: HostSite | None) -> list[str]:
    """Return the commands on the hosts, and their duration."""
    lines = [f"- source: {layer.source}"]
    if site is None:
        return [*lines, "- not run: --site names the hosts", ""]
    if layer.test and layer.test not in site.tests:
        lasts = spell(layer.usual_seconds())
        return [
            *lines,
            f"- not run, as it puts a load on the hosts for about {lasts}: --host-test {layer.test}",
            "",
        ]
    names = ", ".join(host.name for host in site.hosts)
    lines.append(f"- on {names}, for about {spell(layer.usual_seconds())}")
    if layer.bound is not None:
        lines.append(f"- {layer.bound(site)}")
    if site.hosts:
        commands = [TOOLS[tool].command(site, site.hosts[0]) for tool in layer.tools]
        lines += ["", *(f"    {site.hosts[0].name}$ {command}" for command in commands if command)]
    return [*lines, ""]


def _runs(check: Check, site: HostSite | None) -> bool:
    """Return whether the check runs. Checks of hosts need a site; checks with load also need to be named."""
    if not check.layer:
        return True
    test = LAYERS[check.layer].test
    return site is not None and (not test or test in site.tests)


def _evidence(evidence: Evidence) -> str:
    numbers = ((evidence.count(name), name) for name in Evidence.__struct_fields__)
    return ", ".join(f"{number} {name}" for number, name in numbers if number)
