"""One run: the checks of the plan one after the other, on one target, and their results."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import MusterError
from orchestrator.progress import Reporter
from validation.converge import converge
from validation.errors import TargetError
from validation.judge.check_verdict import (
    Judgement,
    StepEvidence,
    blocks_later_checks,
    judge_before_run,
    judge_invariant,
    judge_step,
    judge_unfinished,
    waive,
)
from validation.judge.convergence import ConvergenceResult
from validation.judge.events import NodeSeen
from validation.judge.expectation import Actual, contradictions, differences, observe
from validation.judge.invariants import INVARIANTS, Evidence, Violation
from validation.judge.oracle import Division
from validation.judge.state import evictions
from validation.judge.units import seconds
from validation.judge.verdict import Verdict
from validation.plan import Check
from validation.report import record
from validation.scenario.commands import Action, Submit
from validation.scenario.loader import LoadedScenario, LoadedStep, demands
from validation.targets.base import Target
from validation.targets.process import run_command
from validation.targets.recorder import Recorder

COMMAND_SECONDS = 120.0
SETUP_MS = 60_000
CLEANUP_MS = 60_000


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. `patience` multiplies every `within`; `waivers` maps ids to accepted deviations."""

    fail_fast: bool = False
    patience: float = 1.0
    waivers: Mapping[str, str] = field(default_factory=dict)


class ValidationRun:
    """Runs checks in order; `results` has their results by check id, `spans` when each scenario began and ended."""

    def __init__(self, target: Target, checks: Sequence[Check], options: Options, progress: Reporter) -> None:
        self.target = target
        self.checks = list(checks)
        self.options = options
        self.progress = progress
        self.recorder = Recorder()
        self.results: dict[str, record.CheckResult] = {}
        self.spans: dict[str, tuple[int, int]] = {}
        self.interrupted = ""
        self._watch = contextlib.AsyncExitStack()
        self._group: int | None = None
        self._group_from = 0
        self._blocked = ""
        self._reported_reasons: set[str] = set()
        self._unusable = ""
        self._history: list[Action] = []
        self._created: list[str] = []

    async def run(self, check: Check) -> record.CheckResult:
        """Run one check. Problems of the target are verdicts, not exceptions."""
        result = self._empty(check)
        result.started_ms = self.recorder.now_ms()
        self.results[check.id] = result
        try:
            if check.group != self._group:
                await self._enter(check)
                result.started_ms = self.recorder.now_ms()
            if check.step is not None and not self._blocked:
                self.progress(f"{check.id}: {check.title}")
            judgement = await self._judgement(check, result)
        except MusterError as error:
            judgement = Judgement(Verdict.ERROR, str(error))
        judgement = waive(judgement, self.options.waivers.get(check.id, ""))
        result.verdict, result.reason = judgement.verdict, judgement.reason
        result.ended_ms = self.recorder.now_ms()
        if judgement.verdict == Verdict.BLOCKED:
            result.started_ms = result.ended_ms = None
        elif check.scenario.id in self.spans:
            self.spans[check.scenario.id] = (self.spans[check.scenario.id][0], result.ended_ms)
        if not self._blocked and blocks_later_checks(
            judgement.verdict, is_step=check.step is not None, fail_fast=self.options.fail_fast
        ):
            self._blocked = f"{check.id} is {judgement.verdict}"
        self._report(result)
        return result

    async def finish(self) -> None:
        """Delete what the run created, and stop the target."""
        self.progress("cleaning up")
        try:
            if self._group is not None and not self.target.disposable:
                await self._leave()
        finally:
            await self._watch.aclose()
            await self.target.stop()

    def result_of(self, check: Check) -> record.CheckResult:
        """The result; INCONCLUSIVE for a check that did not run or did not finish."""
        result = self.results.get(check.id)
        if result is not None and (result.ended_ms is not None or result.verdict != Verdict.INCONCLUSIVE):
            return result
        judgement = judge_unfinished(started=result is not None, interrupted=self.interrupted)
        if result is None:
            result = self._empty(check)
        else:
            result.ended_ms = self.recorder.now_ms()
        result.verdict, result.reason = judgement.verdict, judgement.reason
        return result

    def _empty(self, check: Check) -> record.CheckResult:
        step = check.step
        result = record.CheckResult(
            id=check.id,
            scenario=check.scenario.id,
            kind="step" if step is not None else "invariant",
            title=check.title,
            source=step.source if step is not None else "every event of the scenario",
            verdict=Verdict.INCONCLUSIVE,
        )
        if step is not None:
            result.errata = list(step.errata)
            result.expected = step.expectation
            result.oracle = _oracle_record(step.division)
            result.oracle_differences = contradictions(step.expectation, step.division)
        return result

    async def _judgement(self, check: Check, result: record.CheckResult) -> Judgement:
        """Run the check unless it must not run; what was observed goes into `result`."""
        step = check.step
        unrun = judge_before_run(
            is_step=step is not None,
            not_applicable=step.not_applicable if step is not None else "",
            blocked_by=self._blocked,
            scenario_started=check.scenario.id in self.spans,
        )
        if unrun is not None:
            return unrun
        if step is not None:
            return judge_step(await self._perform(check.scenario, step, result))
        violations = self._violations(check)
        result.violations = [record.Violation(violation.t_ms, violation.message) for violation in violations]
        return judge_invariant(violations)

    async def _enter(self, check: Check) -> None:
        """Leave the scenarios before, and bring the target into the shape that the next group needs."""
        if self._group is not None:
            await self._leave()
        self._group = check.group
        self._history = []
        self._blocked = self._unusable or (self._blocked if self.options.fail_fast else "")
        if self._blocked:
            return
        try:
            fresh = await self.target.start(check.scenario.cluster)
        except TargetError:
            raise
        except MusterError as error:
            self._unusable = f"the target cannot be used: {error}"
            raise
        if fresh:
            await self._watch.aclose()
            await self._watch.enter_async_context(self.recorder.watching(self.target.transport))
        self._group_from = len(self.recorder.events)

    async def _create_projects(self, scenario: LoadedScenario, result: record.CheckResult) -> None:
        missing = {name: quota for name, quota in scenario.quotas_milli.items() if name not in self._created}
        for name, quota in missing.items():
            self.recorder.project(name, quota)
            self._created.append(name)
        lines = [f"muster project create {name} -g {quota / 1000:g}" for name, quota in missing.items()]
        await asyncio.gather(*(self._command(line, result) for line in lines))

        def without_namespace() -> list[str]:
            return [name for name in missing if not self.recorder.has_namespace(name)]

        convergence = await converge(without_namespace, self.recorder.changed, within_ms=SETUP_MS, hold_ms=0)
        if convergence.result != ConvergenceResult.CONVERGED:
            raise StepFailed(
                f"project {without_namespace()[0]} got no namespace within {SETUP_MS / 1000:g} s"
            )

    async def _perform(
        self, scenario: LoadedScenario, step: LoadedStep, result: record.CheckResult
    ) -> StepEvidence:
        """Run the commands of the step and wait for its expectation; what was observed goes into `result`."""
        self.spans.setdefault(scenario.id, (self.recorder.now_ms(), self.recorder.now_ms()))
        try:
            await self._create_projects(scenario, result)
            since = len(self.recorder.events)
            for command in step.commands:
                action = command.action
                workloads = (action.name,) if isinstance(action, Submit) else action.names
                kind = "submit" if isinstance(action, Submit) else "delete"
                self.recorder.command(kind, action.project, workloads)
                self._history.append(action)
                await self._command(command.line, result)
        except StepFailed as failure:
            return StepEvidence(command_failure=str(failure))
        projects = list(scenario.quotas_milli)

        def present() -> Actual:
            evicted = [
                pod.workload for pod in evictions(self.recorder.events[since:]) if pod.project in projects
            ]
            return observe(self.recorder.state, evicted, projects)

        def present_differences() -> list[str]:
            lines = differences(step.expectation, present())
            self.progress.update(f"{result.id}: {lines[0] if lines else 'it holds, seeing that it lasts'}")
            return lines

        result.convergence = await converge(
            present_differences,
            self._changed,
            within_ms=int(step.within_ms * self.options.patience),
            hold_ms=step.hold_ms,
            ruled_out=lambda: bool(set(present().evicted) - set(step.expectation.evicted)),
        )
        result.actual = present()
        result.differences = differences(step.expectation, result.actual)
        return StepEvidence(
            convergence=result.convergence,
            contradicts_oracle=bool(result.oracle_differences),
            names_erratum=bool(step.errata),
            target_problem=await self.target.problem(),
        )

    async def _changed(self, timeout_ms: int) -> None:
        """Return at the next event, and for the display at least every half second."""
        await self.recorder.changed(min(timeout_ms, 500))

    def _violations(self, check: Check) -> list[Violation]:
        """The violations of an invariant since its scenario began, from the events of the group."""
        started_ms, _ = self.spans.get(check.scenario.id, (0, 0))
        before, during = self.recorder.events[: self._group_from], self.recorder.events[self._group_from :]
        nodes = [event for event in before if isinstance(event, NodeSeen)]
        evidence = Evidence([*nodes, *during], self.recorder.now_ms())
        violations = INVARIANTS[check.invariant](evidence)
        return [violation for violation in violations if violation.t_ms >= started_ms]

    async def _command(self, line: str, result: record.CheckResult) -> None:
        self.progress.update(f"{result.id}: {line}")
        command = await run_command(
            line, self.target.kubeconfig, started_ms=self.recorder.now_ms(), timeout_seconds=COMMAND_SECONDS
        )
        result.commands = [*result.commands, command]
        if command.exit_code:
            output = (command.stderr or command.stdout).splitlines()
            raise StepFailed(
                f"`{line}` ended with exit code {command.exit_code}: {output[-1] if output else 'no output'}"
            )

    async def _leave(self) -> None:
        """Delete what this group created, and wait until its pods are gone."""
        if not self._created:
            return
        scratch = record.CheckResult(id="cleanup", scenario="", kind="", title="", source="", verdict="")
        projects = list(self._created)
        alive: dict[str, list[str]] = {}
        for demand in demands(self._history):
            alive.setdefault(demand.project, []).append(demand.name)
        try:
            for project, workloads in alive.items():
                self.recorder.command("delete", project, tuple(workloads))
                await self._command(f"muster delete -p {project} {' '.join(workloads)}", scratch)
            for project in projects:
                await self._command(f"muster project delete {project} --force", scratch)
        except (StepFailed, TargetError) as error:
            self._unusable = f"cleaning up failed: {error}"
            return

        def remaining_pods() -> list[str]:
            return [pod.pod for pod in self.recorder.pods_of(set(projects))]

        convergence = await converge(remaining_pods, self._changed, within_ms=CLEANUP_MS, hold_ms=0)
        if convergence.result != ConvergenceResult.CONVERGED:
            self._unusable = (
                f"cleaning up failed: pod {remaining_pods()[0]} is still there after {CLEANUP_MS / 1000:g} s"
            )
        self._created = []

    def _report(self, result: record.CheckResult) -> None:
        """Write the progress lines of a result; invariants that hold share one line, blocked checks one per cause."""
        if result.kind == "invariant" and result.verdict == Verdict.PASS:
            invariants = [
                other
                for other in self.results.values()
                if other.scenario == result.scenario and other.kind == "invariant"
            ]
            if len(invariants) == len(INVARIANTS):
                passed = sum(invariant.verdict == Verdict.PASS for invariant in invariants)
                self.progress(
                    f"{result.scenario}: {passed} of {len(invariants)} invariants held on every event"
                )
            return
        if result.verdict == Verdict.BLOCKED:
            if result.reason not in self._reported_reasons:
                self.progress(f"{result.id} and what builds on it: {result.reason}")
            self._reported_reasons.add(result.reason)
            return
        duration_ms = (result.ended_ms or 0) - (result.started_ms or 0)
        self.progress(f"{result.id}: {result.verdict} ({seconds(duration_ms)})")
        for line in result.reasons:
            self.progress(f"    {line}")


class StepFailed(MusterError):
    """The cluster or the command line did not do what the step asked of it."""


def _oracle_record(division: Division) -> record.Oracle:
    return record.Oracle(
        fair_share_gpus={project: str(share / 1000) for project, share in division.fair_share.items()},
        allocated_milli=dict(division.allocated_milli),
        pending=sorted(name for _, name in division.pending),
        running=len(division.running),
    )
