"""Compares a record with what it says it was made from: the catalogue and the scenarios of this installation.

A record can be judged from itself alone; whether it asks for what the documents ask for, only these can say.
"""

from fnmatch import fnmatchcase

import msgspec

from validation.catalogue.catalogue import Catalogue, Profile, Requirement, load_catalogue
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.errors import CatalogueError, ScenarioError
from validation.report import manifest, record
from validation.report.rejudge import empty_result
from validation.scenario.loaded import LoadedScenario
from validation.scenario.loader import find, load
from validation.scenario.projects import weights_of
from validation.scenario.scaling import parse_size

_OF_THE_FILE = (
    "kind", "source", "least", "within_ms", "hold_ms", "expected", "oracle", "oracle_differences", "job", "utilization",
    "errata", "excused",
)  # fmt: skip


def differences(report: record.Report) -> list[str]:
    """A line for each entry that is not as the sources have it; sources of another version are left alone."""
    catalogue = load_catalogue()
    lines = []
    if catalogue.sha256 == report.scope.catalogue_sha256:
        lines += _requirements(report, catalogue)
    lines += _figures(report)
    sizes = {str(entry.size) for entry in report.scenarios if entry.size is not msgspec.UNSET}
    try:
        shipped = load(find(), parse_size(sizes.pop()) if sizes else None) if not report.redacted else []
    except (ValueError, ScenarioError) as error:
        return [*lines, f"scenarios cannot be of the size that they have: {error}"]
    for scenario in shipped:
        entry = next((e for e in report.scenarios if e.id == scenario.id), None)
        if entry is not None and entry.sha256 == scenario.sha256:
            lines += _steps(report, scenario, entry)
    return lines


def notes(report: record.Report) -> list[str]:
    """What could not be compared, because this installation has another version of it."""
    if report.redacted:
        origin = f"{manifest.NAME} has the sha256 {report.redacted}"
        return [
            f"redacted: names were replaced, scenarios are not compared; made from the report whose {origin}"
        ]
    shipped = {scenario.id: scenario.sha256 for scenario in load(find())}
    lines = [
        f"scenario {entry.id} is another one here: what it expects was taken from the record"
        for entry in report.scenarios
        if shipped.get(entry.id) != entry.sha256
    ]
    if report.scope.hosts is not msgspec.UNSET and report.scope.hosts.figures_sha256 != figures_sha256():
        lines.insert(0, "the figures of hosts are others here: they were taken from the record")
    if load_catalogue().sha256 != report.scope.catalogue_sha256:
        lines.insert(0, "the catalogue is another one here: the requirements were taken from the record")
    return lines


def _figures(report: record.Report) -> list[str]:
    """A line if the hosts were judged by other figures than the file of that digest has."""
    hosts = report.scope.hosts
    if hosts is msgspec.UNSET or hosts.figures_sha256 != figures_sha256():
        return []
    right = load_thresholds()
    if hosts.systems == right.systems and hosts.thresholds == right.hosts:
        return []
    return ["scope.hosts: the figures are not as the file has them"]


def _requirements(report: record.Report, catalogue: Catalogue) -> list[str]:
    try:
        profile = catalogue.profile(report.scope.profile)
        in_part = {requirement.id for requirement in catalogue.part_requirements(report.scope.parts)}
    except CatalogueError as error:
        return [str(error)]
    if [entry.id for entry in report.requirements] != [r.id for r in catalogue.requirements]:
        return ["the requirements are not those of the catalogue"]
    ran = [result.id for result in report.steps]
    lines = []
    for entry, requirement in zip(report.requirements, catalogue.requirements, strict=True):
        right = _as_in_catalogue(entry, requirement, profile) and entry.in_part == (requirement.id in in_part)
        if not right or not _has_all_checks(entry, requirement, ran):
            lines.append(
                f"requirement {entry.id}: is not as the catalogue and the profile {profile.id} have it"
            )
    return lines


def _as_in_catalogue(entry: record.RequirementResult, requirement: Requirement, profile: Profile) -> bool:
    texts = ("section", "claim", "number", "source")
    same = all(getattr(entry, name) == getattr(requirement, name) for name in texts)
    return same and entry.not_applicable == profile.excludes(requirement)


def _has_all_checks(entry: record.RequirementResult, requirement: Requirement, ran: list[str]) -> bool:
    """Whether its checks are those that the patterns name: none too many, none of those that ran missing."""

    def named(check: str) -> bool:
        return any(fnmatchcase(check, pattern) for pattern in requirement.checks)

    empty = [p for p in requirement.checks if not any(fnmatchcase(check, p) for check in entry.checks)]
    missing = [check for check in ran if named(check) and check not in entry.checks]
    return all(named(check) for check in entry.checks) and not empty and not missing


def _steps(report: record.Report, scenario: LoadedScenario, entry: record.ScenarioRecord) -> list[str]:
    lines = []
    if entry.size != (scenario.size or msgspec.UNSET):
        lines.append(f"scenario {scenario.id}: size is not that of the others")
    if entry.quotas_milli != scenario.quotas_milli:
        lines.append(f"scenario {scenario.id}: quotas_milli is not as the file has it")
    if entry.weights_milli != (weights_of(scenario.projects) or msgspec.UNSET):
        lines.append(f"scenario {scenario.id}: weights_milli is not as the file has it")
    for result in report.steps:
        if result.scenario != scenario.id:
            continue
        step = next((s for s in scenario.steps if f"{scenario.id}/{s.id}" == result.id), None)
        if step is None and result.kind == "step":
            lines.append(f"check {result.id}: is not in the file")
            continue
        right = empty_result(result.id, scenario, step, result.title, report.scope.patience_percent)
        lines += [
            f"check {result.id}: {name} is not as the file has it"
            for name in _OF_THE_FILE
            if getattr(result, name) != getattr(right, name)
        ]
    return lines
