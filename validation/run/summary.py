"""The beginning of the log of a run: the record before any check has run, with all requirements."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError

import msgspec

from orchestrator.distribution import installed_version
from validation.judge.verdict import Verdict
from validation.plan.acceptance import Acceptance, foreign
from validation.planned_checks import Check
from validation.report import record
from validation.report.log import NAME, Opened
from validation.report.opening import errata_of, mutants_of
from validation.report.rejudge import coverage
from validation.run.validation_run import ValidationRun
from validation.scenario.loaded import LoadedScenario
from validation.scenario.projects import weights_of


def opening(
    run: ValidationRun, selected: Sequence[Check], started: record.Run, deviations: list[str]
) -> Opened:
    """Return the record before the run.

    `selected` are the checks that will run; `started` has the start and the arguments of the run.
    """
    scenarios = list({check.scenario.id: check.scenario for check in run.checks}.values())
    report = record.Report(
        verdict=Verdict.INCONCLUSIVE,
        acceptance=Verdict.INCONCLUSIVE,
        headline="",
        summary="",
        scope=_scope(run, [*deviations, *foreign(scenarios)]),
        requirements=_requirements(run.acceptance),
        tool=record.Tool("muster", _version(), platform.python_version(), platform.platform(terse=True)),
        target={"kind": run.target.kind},
        cluster=record.ClusterRecord(),
        scenarios=[_scenario(scenario) for scenario in scenarios],
        steps=[run.empty(check) for check in run.checks],
        coverage=coverage([]),
        errata=errata_of(scenarios),
        mutants=mutants_of(check.id for check in run.checks if check.scenario.shipped),
        volatile=record.Trace(started, record.EventFile(NAME, "", 0), evictions=[], series=[]),
    )
    return Opened(report, [check.id for check in selected])


def _scope(run: ValidationRun, deviations: list[str]) -> record.Scope:
    acceptance, options = run.acceptance, run.options
    return record.Scope(
        catalogue_sha256=acceptance.catalogue.sha256,
        profile=acceptance.profile.id,
        profile_title=acceptance.profile.title,
        parts=list(acceptance.parts),
        today=options.today,
        patience_percent=options.patience_percent,
        fail_fast=options.fail_fast,
        deviations=deviations,
        waivers=list(options.waivers),
        hosts=run.hosts.scope if run.hosts is not None else msgspec.UNSET,
    )


def _requirements(acceptance: Acceptance) -> list[record.RequirementResult]:
    return [
        record.RequirementResult(
            id=requirement.id,
            section=requirement.section,
            claim=requirement.claim,
            number=requirement.number,
            source=requirement.source,
            verdict=Verdict.INCONCLUSIVE,
            in_part=facts.in_part,
            not_applicable=facts.not_applicable,
            checks=list(facts.checks),
        )
        for requirement, facts in zip(acceptance.catalogue.requirements, acceptance.facts, strict=True)
    ]


def _scenario(scenario: LoadedScenario) -> record.ScenarioRecord:
    metadata = scenario.scenario.metadata
    return record.ScenarioRecord(
        id=scenario.id,
        title=metadata.title,
        source=metadata.source,
        file="/".join(scenario.path.parts[-2:]),
        sha256=scenario.sha256,
        shipped=scenario.shipped,
        description=metadata.description,
        continues=scenario.scenario.continues,
        quotas_milli=scenario.quotas_milli,
        weights_milli=weights_of(scenario.projects) or msgspec.UNSET,
        size=scenario.size or msgspec.UNSET,
    )


def _version() -> str:
    try:
        return installed_version()
    except PackageNotFoundError:
        return "not installed"
