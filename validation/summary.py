"""Makes the record of a run from its results and events."""

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from typing import Any

from orchestrator.distribution import installed_version
from validation.acceptance import Acceptance, foreign
from validation.judge.state import evictions, series
from validation.judge.verdict import Verdict
from validation.plan import Check
from validation.report import record
from validation.report.rejudge import coverage, judge_report
from validation.run import Options, ValidationRun
from validation.scenario.loader import LoadedScenario

GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """The part of the record that the run itself does not know. Times are RFC 3339, UTC."""

    id: str
    argv: list[str]
    started: str
    ended: str
    kubernetes: str
    target: dict[str, Any]
    """The target's description of itself, from before it was stopped."""
    timings: dict[str, str]
    deviations: list[str]


def summarize(run: ValidationRun, selected: list[Check], metadata: RunMetadata) -> record.Report:
    """Everything that report.json holds; `selected` are the checks that the run was to run."""
    steps = [run.result_of(check) for check in run.checks if check in selected or check.id in run.results]
    scenarios = list({check.scenario.id: check.scenario for check in run.checks}.values())
    report = record.Report(
        verdict=Verdict.INCONCLUSIVE,
        acceptance=Verdict.INCONCLUSIVE,
        headline="",
        summary="",
        scope=_scope(run.acceptance, run.options, [*metadata.deviations, *foreign(scenarios)]),
        requirements=_requirements(run.acceptance),
        tool=record.Tool("muster", _version(), platform.python_version(), platform.platform(terse=True)),
        target=metadata.target,
        cluster=_cluster(run, metadata.kubernetes),
        scenarios=[_scenario(scenario, run) for scenario in scenarios],
        steps=steps,
        coverage=coverage(steps),
        errata=list({erratum.id: erratum for scenario in scenarios for erratum in scenario.errata}.values()),
        volatile=record.Trace(
            run=record.Run(
                id=metadata.id,
                argv=metadata.argv,
                started=metadata.started,
                ended=metadata.ended,
                duration_ms=run.recorder.now_ms(),
                timings=metadata.timings,
            ),
            evictions=_evictions(run, steps),
            series=[record.Point(t_ms, allocated) for t_ms, allocated in series(run.recorder.events)],
            timeline=list(run.recorder.events),
        ),
        interrupted=run.interrupted,
    )
    judge_report(report)
    return report


def _scope(acceptance: Acceptance, options: Options, deviations: list[str]) -> record.Scope:
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


def _scenario(scenario: LoadedScenario, run: ValidationRun) -> record.ScenarioRecord:
    started, ended = run.spans.get(scenario.id, (None, None))
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
        volatile=record.ScenarioTrace(started, ended),
    )


def _cluster(run: ValidationRun, kubernetes: str) -> dict[str, Any]:
    nodes = []
    for name, node in sorted(run.recorder.nodes.items()):
        gpus = run.recorder.state.nodes.get(name, 0)
        product = node.metadata.labels.get(GPU_PRODUCT_LABEL, "")
        nodes.append({"name": name, "gpus": gpus, "product": product})
    return {"kubernetes": kubernetes, "gpus": sum(node["gpus"] for node in nodes), "nodes": nodes}


def _evictions(run: ValidationRun, steps: list[record.CheckResult]) -> list[record.EvictionRecord]:
    spans = [
        (step.volatile.started_ms, step.volatile.ended_ms, step.id)
        for step in steps
        if step.kind == "step" and step.volatile.started_ms is not None
    ]
    records = []
    for pod in evictions(run.recorder.events):
        step = next((name for start, end, name in spans if start <= pod.t_ms <= (end or pod.t_ms)), "")
        records.append(
            record.EvictionRecord(
                t_ms=pod.t_ms,
                step=step,
                project=pod.project,
                workload=pod.workload,
                pod=pod.pod,
                node=pod.node,
                devices=list(pod.devices),
                gpu_milli=pod.gpu_milli,
                reason=pod.eviction.reason if pod.eviction else "",
                message=pod.eviction.message if pod.eviction else "",
            )
        )
    return records


def _version() -> str:
    try:
        return installed_version()
    except PackageNotFoundError:
        return "not installed"
