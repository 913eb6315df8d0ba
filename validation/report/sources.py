"""Compares a record with its sources: the catalogue and the scenarios of this installation.

A record contains everything for a judgement. Only a comparison with the sources shows whether it has all requirements
of the documents.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec

from orchestrator.distribution import installed_version
from validation.catalogue.catalogue import Catalogue, Profile, Requirement, load_catalogue
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.check_titles import title_of
from validation.errors import CatalogueError, ScenarioError
from validation.judge.verdict import Verdict
from validation.planned_checks import Check, plan
from validation.report import manifest, record
from validation.report.opening import errata_of, mutants_of
from validation.report.pseudonyms import Pseudonyms
from validation.report.rejudge import coverage, empty_result
from validation.scenario.loaded import LoadedScenario
from validation.scenario.loader import find, load
from validation.scenario.projects import weights_of
from validation.scenario.scaling import parse_size

_WITH_NAMES = {"expected", "oracle", "oracle_differences", "job"}
"""Fields of a check in which a redacted record has pseudonyms."""
_JUDGED = ("verdict", "required", "reason", "circumstances", "actual", "differences", "volatile")
"""Fields of a check that only a run fills in."""
_OF_PROGRAM = ("requirements",)
"""Fields of a check that are not in the file of its scenario. They differ between versions of muster."""
REDACTED = "redacted"
"""The name of the note that a record has pseudonyms."""
TITLES = "titles"
"""The name of the note about checks whose titles in this installation differ from the record."""
_NAMED = 20
_SHOWN = 200
"""Maximum length of a title in the note, in characters. _NAMED is the maximum number of titles."""


@dataclass(slots=True)
class Comparison:
    """`problems` are entries that differ from the sources. `notes` has, by name, entries that could not be compared.

    The note `redacted` only names the original record. If there is no other note, everything was compared.
    """

    problems: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether everything was compared."""
        return self.notes.keys() <= {REDACTED}


def compare(report: record.Report) -> Comparison:
    """Compare the parts of the record that existed before the run with the sources of this installation.

    A record of this version of muster must have its catalogue, scenarios and figures. Otherwise it was forged.
    """
    result = Comparison()
    if report.redacted:
        result.notes[REDACTED] = (
            f"names were replaced; made from the report whose {manifest.NAME} has the sha256 {report.redacted}"
        )
    ours = report.tool.version == installed_version()
    if not ours:
        result.notes["version"] = (
            f"muster {report.tool.version} made the record, this is {installed_version()}"
        )
    if not _is_unjudged(report):
        result.problems.append("it has results before the run")
    _compare_catalogue(report, result, is_ours=ours)
    _compare_figures(report, result, is_ours=ours)
    _compare_scenarios(report, result, is_ours=ours)
    if titles := _other_titles(report):
        more = f"; {len(titles) - _NAMED} more" if len(titles) > _NAMED else ""
        named = "; ".join(titles[:_NAMED])
        result.notes[TITLES] = f"the record has other titles than this installation: {named}{more}"
    return result


def _other_titles(report: record.Report) -> list[str]:
    """Return a line with both titles for each check whose title differs.

    Steps are left out: their titles are in the scenario.
    """
    return [
        f"{result.id} is `{result.title[:_SHOWN]}`, here `{title_of(result.name) or 'unknown'}`"
        for result in report.steps
        if result.kind != "step" and result.title != title_of(result.name)
    ]


def with_own_titles(report: record.Report) -> record.Report:
    """Return the record with the titles of this installation, for display.

    A check that is unknown here keeps its title.
    """
    for result in report.steps:
        if result.kind != "step":
            result.title = title_of(result.name) or result.title
    return report


def _differs(result: Comparison, name: str, source: str, *, is_ours: bool) -> None:
    """Add a note about a source that differs in this installation. If the version is the same, add a problem."""
    if is_ours:
        result.problems.append(f"{name}: {source} is not that of the version of muster that the record names")
    else:
        result.notes[name] = f"{source} is another one here: it was taken from the record"


def _compare_catalogue(report: record.Report, result: Comparison, *, is_ours: bool) -> None:
    catalogue = load_catalogue()
    if catalogue.sha256 != report.scope.catalogue_sha256:
        _differs(result, "catalogue", "the catalogue", is_ours=is_ours)
        return
    result.problems += _requirements(report, catalogue)


def _compare_figures(report: record.Report, result: Comparison, *, is_ours: bool) -> None:
    hosts = report.scope.hosts
    if hosts is msgspec.UNSET:
        return
    is_named = any(deviation.startswith("in service: ") for deviation in report.scope.deviations)
    if (hosts.site.busy is not msgspec.UNSET) != is_named:
        result.problems.append(
            "scope.deviations: do not say as scope.hosts does whether the run was in service"
        )
    if hosts.baseline and hosts.baseline.version != report.tool.version:
        result.problems.append("scope.hosts.baseline: another version of muster made it")
    if hosts.figures_sha256 != figures_sha256():
        _differs(result, "figures", "the file of figures of hosts", is_ours=is_ours)
        return
    right = load_thresholds()
    if hosts.systems != right.systems or hosts.thresholds != right.hosts:
        result.problems.append("scope.hosts: the figures are not as the file has them")
    if hosts.baseline and hosts.baseline.limits != right.drift:
        result.problems.append("scope.hosts.baseline: the limits are not as the file has them")


def _compare_scenarios(report: record.Report, result: Comparison, *, is_ours: bool) -> None:
    """Compare each scenario with its file. If a scenario did not ship, the deviations of the record must name it."""
    sizes = {str(entry.size) for entry in report.scenarios if entry.size is not msgspec.UNSET}
    try:
        shipped = {
            scenario.id: scenario for scenario in load(find(), parse_size(sizes.pop()) if sizes else None)
        }
    except (ValueError, ScenarioError) as error:
        result.problems.append(f"scenarios cannot be of the size that they have: {error}")
        return
    names = Pseudonyms(is_exact=not report.redacted)
    loaded = [shipped[entry.id] for entry in report.scenarios if entry.shipped and entry.id in shipped]
    checks = plan(loaded)
    for entry in report.scenarios:
        scenario = shipped.get(entry.id)
        if not entry.shipped:
            if not any(f"scenario {entry.id} " in deviation for deviation in report.scope.deviations):
                result.problems.append(f"scenario {entry.id}: did not ship, and the deviations do not say so")
            else:
                result.notes[f"scenario:{entry.id}"] = f"scenario {entry.id} did not ship with muster"
        elif scenario is None or entry.sha256 != scenario.sha256:
            _differs(result, f"scenario:{entry.id}", f"scenario {entry.id}", is_ours=is_ours)
        else:
            result.problems += _scenario(scenario, entry, names)
            of_scenario = [check for check in checks if check.scenario.id == entry.id]
            result.problems += _steps(report, of_scenario, names, () if is_ours else _OF_PROGRAM)
    result.problems += _documents(report, checks, loaded) if is_ours else []


def _is_unjudged(report: record.Report) -> bool:
    """Return whether the record has no values that only a run sets."""
    blank = record.CheckResult(id="", scenario="", kind="", title="", source="", verdict=Verdict.INCONCLUSIVE)
    found = [getattr(result, name) == getattr(blank, name) for result in report.steps for name in _JUDGED]
    found += [(entry.verdict, entry.reason) == (Verdict.INCONCLUSIVE, "") for entry in report.requirements]
    trace, run = report.volatile, report.volatile.run
    words = (report.headline, report.summary, report.interrupted, run.ended, trace.events.sha256)
    lists = (
        trace.evictions,
        trace.series,
        trace.images,
        report.identity,
        report.hosts,
        report.cluster,
        run.timings,
    )
    first = (report.verdict, report.acceptance, report.coverage, run.duration_ms, trace.events.events)
    is_new = first == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, coverage([]), 0, 0)
    is_new = is_new and all(entry.volatile == record.ScenarioTrace() for entry in report.scenarios)
    return is_new and all(found) and not any(words) and not any(lists) and report.target.keys() == {"kind"}


def _documents(report: record.Report, checks: Sequence[Check], loaded: Sequence[LoadedScenario]) -> list[str]:
    """Compare the checks, the errata and the defects as a whole, except those of scenarios that did not ship."""
    lines = []
    names = Pseudonyms(is_exact=not report.redacted)
    of_scenarios = {scenario.id for scenario in loaded}
    ids = [result.id for result in report.steps if result.scenario in of_scenarios]
    if not names.match_ids(ids, [check.id for check in checks]):
        lines.append("the checks are not those of the scenarios")
    if len(of_scenarios) == len(report.scenarios) and not names.matches(report.errata, errata_of(loaded)):
        lines.append("the errata are not those of the scenarios")
    mutants = mutants_of(check.id for check in checks)
    if not (
        [(mutant.name, mutant.defect) for mutant in report.mutants] == [(m.name, m.defect) for m in mutants]
        and all(
            names.match_ids(mutant.killers, right.killers)
            for mutant, right in zip(report.mutants, mutants, strict=True)
        )
    ):
        lines.append("the defects are not those that the checks were shown to notice")
    return lines


def _requirements(report: record.Report, catalogue: Catalogue) -> list[str]:
    try:
        profile = catalogue.profile(report.scope.profile)
        in_part = {requirement.id for requirement in catalogue.part_requirements(report.scope.parts)}
    except CatalogueError as error:
        return [str(error)]
    if [entry.id for entry in report.requirements] != [r.id for r in catalogue.requirements]:
        return ["the requirements are not those of the catalogue"]
    own = {entry.id for entry in report.scenarios if not entry.shipped}
    # The catalogue does not have own scenarios, so their invariants prove none of its requirements.
    ran = [result.id for result in report.steps if result.scenario not in own]
    lines = []
    if report.target.get("kind") not in profile.targets:
        lines.append(f"the profile {profile.id} is not for the target {report.target.get('kind')}")
    if report.scope.profile_title != profile.title:
        lines.append(f"the title of the profile {profile.id} is not that of the catalogue")
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
    """Return whether the checks of the entry are exactly those of the requirement's patterns, as far as the checks
    ran.
    """

    def named(check: str) -> bool:
        return any(fnmatchcase(check, pattern) for pattern in requirement.checks)

    empty = [p for p in requirement.checks if not any(fnmatchcase(check, p) for check in entry.checks)]
    missing = [check for check in ran if named(check) and check not in entry.checks]
    return all(named(check) for check in entry.checks) and not empty and not missing


def _is_same(recorded: object, source: object, names: Pseudonyms | None) -> bool:
    return recorded == source if names is None else names.matches(recorded, source)


def _scenario(scenario: LoadedScenario, entry: record.ScenarioRecord, names: Pseudonyms) -> list[str]:
    lines = []
    metadata = scenario.scenario.metadata
    texts = {
        "title": metadata.title,
        "source": metadata.source,
        "file": "/".join(scenario.path.parts[-2:]),
        "description": metadata.description,
        "continues": scenario.scenario.continues,
    }
    if entry.size != (scenario.size or msgspec.UNSET):
        lines.append(f"scenario {scenario.id}: size is not that of the others")
    lines += [
        f"scenario {scenario.id}: {name} is not as the file has it"
        for name, right in texts.items()
        if getattr(entry, name) != right
    ]
    if not names.matches(entry.quotas_milli, scenario.quotas_milli):
        lines.append(f"scenario {scenario.id}: quotas_milli is not as the file has it")
    if not names.matches(entry.weights_milli, weights_of(scenario.projects) or msgspec.UNSET):
        lines.append(f"scenario {scenario.id}: weights_milli is not as the file has it")
    return lines


def _steps(
    report: record.Report, checks: Sequence[Check], names: Pseudonyms, beside: Collection[str]
) -> list[str]:
    """Compare each check of a scenario with its file, except the fields in `beside`."""
    results = [result for result in report.steps if result.scenario == checks[0].scenario.id]
    lines = [f"check {result.id}: is not in the file" for result in results[len(checks) :]]
    catalogue = load_catalogue()
    for result, check in zip(results, checks, strict=False):
        right = empty_result(
            result.id, check.scenario, check.step, check.title, report.scope.patience_percent
        )
        right.requirements = catalogue.proven_by(check.id)
        lines += [
            f"check {result.id}: {name} is not as the file has it"
            for name in result.__struct_fields__
            if name not in {*_JUDGED, *beside, *(() if result.kind == "step" else ("title",))}
            and not _is_same(
                getattr(result, name), getattr(right, name), names if name in _WITH_NAMES else None
            )
        ]
    return lines
