"""Makes the record of a run from its results and events."""

import platform
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from typing import Any

from orchestrator.distribution import installed_version
from validation.judge.state import evictions, series
from validation.judge.verdict import EXECUTED, Outcome, Verdict, overall
from validation.plan import Check
from validation.report import record
from validation.run import ValidationRun
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


def summarize(run: ValidationRun, run_metadata: RunMetadata) -> record.Report:
    """Everything that report.json holds."""
    steps = [run.result_of(check) for check in run.checks]
    verdict = overall(Outcome(Verdict(step.verdict), step.required) for step in steps)
    counts = Counter(step.verdict for step in steps)
    executed = sum(counts[verdict] for verdict in EXECUTED)
    scenarios = _scenarios(run.checks)
    return record.Report(
        verdict=verdict,
        summary=_sentence(verdict, steps, executed),
        tool=record.Tool("muster", _version(), platform.python_version(), platform.platform(terse=True)),
        run=record.Run(
            id=run_metadata.id,
            argv=run_metadata.argv,
            started=run_metadata.started,
            ended=run_metadata.ended,
            duration_ms=run.recorder.now_ms(),
            interrupted=run.interrupted,
        ),
        target=run_metadata.target,
        cluster=_cluster(run, run_metadata.kubernetes),
        scenarios=[_scenario(scenario, run) for scenario in scenarios],
        steps=steps,
        coverage=record.Coverage(
            steps=len(steps),
            required=sum(step.required for step in steps),
            executed=executed,
            by_verdict={verdict.value: counts[verdict] for verdict in Verdict if counts[verdict]},
        ),
        evictions=_evictions(run, steps),
        errata=list({erratum.id: erratum for scenario in scenarios for erratum in scenario.errata}.values()),
        series=[record.Point(t_ms, allocated) for t_ms, allocated in series(run.recorder.events)],
        timeline=list(run.recorder.events),
    )


def _scenarios(checks: list[Check]) -> list[LoadedScenario]:
    return list({check.scenario.id: check.scenario for check in checks}.values())


def _scenario(scenario: LoadedScenario, run: ValidationRun) -> record.ScenarioRecord:
    started, ended = run.spans.get(scenario.id, (None, None))
    metadata = scenario.scenario.metadata
    return record.ScenarioRecord(
        id=scenario.id,
        title=metadata.title,
        source=metadata.source,
        file="/".join(scenario.path.parts[-2:]),
        sha256=scenario.sha256,
        description=metadata.description,
        continues=scenario.scenario.continues,
        quotas_milli=scenario.quotas_milli,
        started_ms=started,
        ended_ms=ended,
    )


def _cluster(run: ValidationRun, kubernetes: str) -> dict[str, Any]:
    nodes = []
    for name, node in sorted(run.recorder.nodes.items()):
        gpus = run.recorder.state.nodes.get(name, 0)
        product = node.metadata.labels.get(GPU_PRODUCT_LABEL, "")
        nodes.append({"name": name, "gpus": gpus, "product": product})
    return {"kubernetes": kubernetes, "gpus": sum(node["gpus"] for node in nodes), "nodes": nodes}


def _evictions(run: ValidationRun, steps: list[record.CheckResult]) -> list[record.EvictionRecord]:
    spans = [(s.started_ms, s.ended_ms, s.id) for s in steps if s.kind == "step" and s.started_ms is not None]
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


def _sentence(verdict: Verdict, steps: list[record.CheckResult], executed: int) -> str:
    if verdict == Verdict.PASS:
        waived = sum(step.verdict == Verdict.WAIVED for step in steps)
        extra = f", {waived} with an accepted deviation" if waived else ""
        return f"All {len(steps)} steps and invariants are satisfied ({executed} executed{extra})."
    first = next((step for step in steps if step.verdict == verdict), None)
    if first is None:
        return "Nothing was executed."
    reason = next(iter(first.reasons), "")
    count = sum(step.verdict == verdict for step in steps)
    return f"{count} of {len(steps)} steps and invariants: {verdict}. First: {first.id}: {reason}"


def _version() -> str:
    try:
        return installed_version()
    except PackageNotFoundError:
        return "not installed"
