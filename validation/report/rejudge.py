"""Judges a record by the events of its run, and writes the results into it."""

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction

import msgspec

from validation.errors import MISTAKES
from validation.judge.api.api_checks import API_CHECKS, judge_api
from validation.judge.check_verdict import (
    Judgement,
    StepCheck,
    judge_invariant,
    judge_step,
    mistake,
    waive,
)
from validation.judge.events import Event, ImagePulled
from validation.judge.hosts.host_layer import HostScope
from validation.judge.requirements import RequirementFacts, RunJudgement, judge_requirement, judge_run
from validation.judge.requirements import Scope as JudgedScope
from validation.judge.scheduling import oracle
from validation.judge.scheduling.expectation import contradictions
from validation.judge.state import evictions
from validation.judge.timeline import Timeline
from validation.judge.training.training_job import JobCheck, judge_job
from validation.judge.use.use_check import judge_use
from validation.judge.verdict import Verdict
from validation.judge.views.lists import judge_view
from validation.layers.checks import LAYERS, judge_layer
from validation.report import record
from validation.report.host_rows import host_rows
from validation.report.identity import identity_of
from validation.report.series import points
from validation.scenario.loaded import LoadedScenario, LoadedStep

INVARIANT = "/invariant/"
LAYER = "/layer/"
API = "/api/"
TRAINING = "/training/"
VIEW = "/view/"
UTILIZATION = "/utilization"


def empty_result(
    check_id: str, scenario: LoadedScenario, step: LoadedStep | None, title: str, patience_percent: int
) -> record.CheckResult:
    """Return the result of a check before it runs: everything that is known before."""
    result = record.CheckResult(
        id=check_id,
        scenario=scenario.id,
        kind="step" if step is not None else "invariant",
        title=title,
        source=step.source if step is not None else "every event of the scenario",
        verdict=Verdict.INCONCLUSIVE,
        least=step.least if step is not None else scenario.least,
    )
    if LAYER in check_id:
        result.kind, result.source = "layer", LAYERS[check_id.partition(LAYER)[2]].source
    if API in check_id:
        result.kind, result.source = "api", API_CHECKS[check_id.partition(API)[2]].source
    if VIEW in check_id:
        result.kind, result.source = "view", "the events of the API server"
    if TRAINING in check_id and scenario.training is not None:
        result.kind, result.source, result.job = "training", scenario.training.source, scenario.training.job
        result.within_ms = scenario.training.within_ms * patience_percent // 100
    if check_id == scenario.id + UTILIZATION and scenario.utilization is not None:
        use = scenario.utilization
        result.kind, result.source, result.least = "utilization", use.source, use.least
        result.utilization = use.standard
    if step is not None:
        result.errata = list(step.errata)
        result.excused = list(step.excused)
        result.within_ms = step.within_ms * patience_percent // 100
        result.hold_ms = step.hold_ms
        result.expected = step.expectation
        projects = [project.claim(name) for name, project in scenario.projects.items()]
        result.oracle = oracle_record(step.capacity_milli, projects, step.demands)
        result.oracle_differences = contradictions(step.expectation, step.division, step.excused)
    return result


def oracle_record(
    capacity_milli: int, projects: Sequence[oracle.Project], demands: Sequence[oracle.Demand]
) -> record.Oracle:
    """Return the result of the oracle for the demands, for the record."""
    division = oracle.divide(capacity_milli, projects, demands)
    return record.Oracle(
        capacity_milli=capacity_milli,
        demands=list(demands),
        fair_share_gpus={project: str(share / 1000) for project, share in division.fair_share.items()},
        allocated_milli=dict(division.allocated_milli),
        pending=sorted(name for _, name in division.pending),
        running=len(division.running),
    )


def step_check(result: record.CheckResult) -> StepCheck:
    """Return the conditions of the step for the judge. Raises ValueError if the result is not the result of a step."""
    if result.expected is None:
        raise ValueError(f"{result.id} has no expectation")
    return StepCheck(
        expected=result.expected,
        projects=list(result.expected.allocated_milli),
        within_ms=result.within_ms,
        hold_ms=result.hold_ms,
        least=result.least,
        contradictions=result.oracle_differences,
    )


def judge_result(
    result: record.CheckResult, timeline: Timeline, hosts: HostScope | msgspec.UnsetType
) -> Judgement:
    """Return the judgement on a check, before waivers are applied, and write its evidence into `result`.

    A mistake in the code of the check is ERROR, in the run and whenever the record is judged again. Only layers need
    `hosts`.
    """
    try:
        return _judge_kind(result, timeline, hosts)
    except MISTAKES as error:
        return mistake(error)


def _judge_kind(
    result: record.CheckResult, timeline: Timeline, hosts: HostScope | msgspec.UnsetType
) -> Judgement:
    trace = result.volatile
    if result.kind == "step":
        step = judge_step(step_check(result), result.circumstances, timeline, trace.window)
        trace.convergence, trace.evidence = step.convergence, step.evidence
        trace.causes = list(step.causes) or msgspec.UNSET
        result.actual, result.differences = step.actual, list(step.differences)
        return step.judgement
    if result.job is not None:
        check = JobCheck(result.id.partition(TRAINING)[2], result.job, result.within_ms, result.least)
        job = judge_job(check, result.circumstances, timeline, trace.window)
        trace.evidence, trace.causes = job.evidence, list(job.causes) or msgspec.UNSET
        return job.judgement
    if result.utilization is not msgspec.UNSET:
        use = judge_use(result.utilization, result.least, result.circumstances, timeline, trace.window)
        trace.evidence, trace.causes = use.evidence, list(use.causes) or msgspec.UNSET
        trace.utilization = msgspec.UNSET if use.measured is None else use.measured
        return use.judgement
    if result.kind == "layer":
        layer = result.id.partition(LAYER)[2]
        judgement, trace.evidence = judge_layer(
            layer, hosts, result.circumstances, timeline.events, trace.window
        )
        return judgement
    if result.kind in {"api", "view"}:
        return _judge_answered(result, timeline)
    name = result.id.partition(INVARIANT)[2]
    invariant = judge_invariant(name, result.circumstances, timeline, trace.window, least=result.least)
    trace.violations = list(invariant.violations)
    trace.subjects, trace.evidence = invariant.subjects, invariant.evidence
    return invariant.judgement


def _judge_answered(result: record.CheckResult, timeline: Timeline) -> Judgement:
    """Return the judgement on an answer of the API server, or on a view of the orchestrator."""
    circumstances, window, least = result.circumstances, result.volatile.window, result.least
    if result.kind == "api":
        api = judge_api(result.id.partition(API)[2], circumstances, timeline, window, least=least)
        result.volatile.evidence = api.evidence
        return api.judgement
    view = judge_view(result.id.partition(VIEW)[2], circumstances, timeline, window, least=least)
    result.volatile.evidence, result.differences = view.evidence, list(view.differences)
    return view.judgement


def judge_report(report: record.Report) -> RunJudgement:
    """Judge a run from the verdicts on its checks.

    Write the verdicts on the requirements and on the run into `report`.
    """
    judgements = {
        result.id: Judgement(Verdict(result.verdict), result.reason, result.required)
        for result in report.steps
    }
    facts = [
        RequirementFacts(entry.id, entry.checks, entry.not_applicable, entry.in_part)
        for entry in report.requirements
    ]
    for entry, requirement in zip(report.requirements, facts, strict=True):
        judgement = judge_requirement(requirement, judgements)
        entry.verdict, entry.reason = judgement.verdict, judgement.reason
    scope = JudgedScope(report.scope.profile, report.scope.parts, report.scope.deviations)
    judged = judge_run(scope, facts, judgements, report.interrupted)
    report.verdict, report.acceptance = judged.verdict, judged.acceptance
    report.headline, report.summary = judged.headline, judged.summary
    report.coverage = coverage(report.steps)
    return judged


def coverage(results: Sequence[record.CheckResult]) -> record.Coverage:
    """Return the number of checks, and how many of the required checks have each verdict."""
    counted = [result.verdict for result in results if result.required]
    counts = {verdict.value: counted.count(verdict) for verdict in Verdict}
    return record.Coverage(
        steps=len(results),
        required=len(counted),
        executed=counts["PASS"] + counts["FAIL"] + counts["WAIVED"],
        by_verdict={verdict: number for verdict, number in counts.items() if number},
    )


def judge_record(report: record.Report, events: Sequence[Event]) -> None:
    """Judge every check by the events, then the run. Write all results into the record."""
    timeline = Timeline(events)
    for result in report.steps:
        judgement = judge_result(result, timeline, report.scope.hosts)
        judgement = waive(judgement, result.id, result.said, report.scope.waivers, report.scope.today)
        result.verdict, result.reason = judgement.verdict, judgement.reason
        result.required = judgement.required
    judge_report(report)
    report.volatile.series = points(events)
    report.volatile.evictions = eviction_records(events, report.steps)
    report.volatile.images = image_records(events) or msgspec.UNSET
    report.identity = identity_of(events)
    report.hosts = host_rows(report, events)


def calculate_oracle(report: record.Report) -> None:
    """Write the result of the oracle after each step into the record, and its differences from the expectation."""
    projects = {scenario.id: _projects(scenario) for scenario in report.scenarios}
    for result in report.steps:
        if result.expected is not None and result.oracle is not None:
            capacity_milli, demands = result.oracle.capacity_milli, result.oracle.demands
            division = oracle.divide(capacity_milli, projects.get(result.scenario, []), demands)
            result.oracle = oracle_record(capacity_milli, projects.get(result.scenario, []), demands)
            result.oracle_differences = contradictions(result.expected, division, result.excused)


def eviction_records(
    events: Sequence[Event], results: Sequence[record.CheckResult]
) -> list[record.EvictionRecord]:
    """Return the evicted pods with their GPUs and the step of the eviction."""
    spans = [
        (result.volatile.started_ms, result.volatile.ended_ms, result.id)
        for result in results
        if result.kind == "step" and result.volatile.started_ms is not None
    ]
    starts = [start for start, _, _ in spans]
    records = []
    for pod in evictions(events):
        number = bisect_right(starts, pod.t_ms) - 1
        while number > 0 and (spans[number - 1][1] or 0) >= pod.t_ms:
            number -= 1
        inside = number >= 0 and pod.t_ms <= (spans[number][1] or pod.t_ms)
        records.append(
            record.EvictionRecord(
                t_ms=pod.t_ms,
                step=spans[number][2] if inside else "",
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


def image_records(events: Sequence[Event]) -> list[record.ImageRecord]:
    """Return the images that each node pulled before the first measurement."""
    return [
        record.ImageRecord(event.node, event.name, event.image, event.digest, event.took_ms, event.problem)
        for event in events
        if isinstance(event, ImagePulled)
    ]


def disagreements(report: record.Report, again: record.Report) -> list[str]:
    """Return a line for each entry in which `report` differs from `again`."""
    for subject in ("steps", "requirements"):
        if [entry.id for entry in getattr(report, subject)] != [
            entry.id for entry in getattr(again, subject)
        ]:
            return [f"{subject} are not those that follow"]
    pairs: list[tuple[str, msgspec.Struct, msgspec.Struct]] = [
        (f"check {before.id}: ", before, after)
        for before, after in zip(report.steps, again.steps, strict=True)
    ]
    pairs += [
        (f"requirement {before.id}: ", before, after)
        for before, after in zip(report.requirements, again.requirements, strict=True)
    ]
    pairs.append(("", report, again))
    lines = []
    for prefix, before, after in pairs:
        for name in before.__struct_fields__:
            old, new = getattr(before, name), getattr(after, name)
            if old != new and not (before is report and name in {"steps", "requirements"}):
                lines.append(f"{prefix}{name} is recorded as {_short(old)}, and follows as {_short(new)}")
    return lines


def _short(value: object) -> str:
    text = "nothing" if value is msgspec.UNSET else msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:119] + "\N{HORIZONTAL ELLIPSIS}"


def _projects(scenario: record.ScenarioRecord) -> list[oracle.Project]:
    """Return the projects of the scenario with their quotas, and with the weights that differ from the quotas."""
    weights = {name: Fraction(weight) for name, weight in (scenario.weights_milli or {}).items()}
    return [oracle.Project(name, quota, weights.get(name)) for name, quota in scenario.quotas_milli.items()]
