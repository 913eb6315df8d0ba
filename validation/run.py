"""One run: asks the questions of the plan one after the other, on one target, and keeps the answers."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import MusterError
from orchestrator.progress import Reporter
from validation.converge import CONVERGED, FLAPPED, RULED_OUT, converge
from validation.errors import TargetError
from validation.judge.events import NodeSeen
from validation.judge.expectation import Actual, Expectation, differences, observe
from validation.judge.invariants import CHECKS, Evidence
from validation.judge.state import evictions
from validation.judge.verdict import ACCEPTABLE, Verdict
from validation.plan import Question
from validation.report import record
from validation.report.text import seconds
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
    """Answers questions in order. The answers stay in `answers`, by question id."""

    def __init__(
        self, target: Target, questions: Sequence[Question], options: Options, progress: Reporter
    ) -> None:
        self.target = target
        self.questions = list(questions)
        self.options = options
        self.progress = progress
        self.recorder = Recorder()
        self.answers: dict[str, record.Step] = {}
        self.spans: dict[str, tuple[int, int]] = {}
        self.interrupted = ""
        self._watch = contextlib.AsyncExitStack()
        self._group: int | None = None
        self._group_from = 0
        self._blocked = ""
        self._told: set[str] = set()
        self._unusable = ""
        self._history: list[Action] = []
        self._created: list[str] = []

    async def ask(self, question: Question) -> record.Step:
        """Answer one question. Problems of the target are verdicts, not exceptions."""
        answer = self._empty(question)
        answer.started_ms = self.recorder.now_ms()
        self.answers[question.id] = answer
        try:
            if question.group != self._group:
                await self._enter(question)
                answer.started_ms = self.recorder.now_ms()
            if question.step is not None and not self._blocked:
                self.progress(f"{question.id}: {question.title}")
            await self._answer(question, answer)
        except MusterError as error:
            answer.verdict, answer.reason = Verdict.ERROR, str(error)
        answer.ended_ms = self.recorder.now_ms()
        self._waive(answer)
        if answer.verdict == Verdict.BLOCKED:
            answer.started_ms = answer.ended_ms = None
        elif question.scenario.id in self.spans:
            self.spans[question.scenario.id] = (self.spans[question.scenario.id][0], answer.ended_ms)
        if (
            answer.verdict not in ACCEPTABLE
            and not self._blocked
            and (question.step or self.options.fail_fast)
        ):
            self._blocked = f"{question.id} is {answer.verdict}"
        self._tell(answer)
        return answer

    async def finish(self) -> None:
        """Clean up and give the target back."""
        self.progress("cleaning up")
        try:
            if self._group is not None and not self.target.disposable:
                await self._leave()
        finally:
            await self._watch.aclose()
            await self.target.stop()

    def answer_of(self, question: Question) -> record.Step:
        """The answer, also for a question that was never asked: then it is INCONCLUSIVE or BLOCKED, never
        green.
        """
        answer = self.answers.get(question.id)
        if answer is None:
            answer = self._empty(question)
            answer.reason = f"not run: {self.interrupted or 'the run ended before it'}"
        elif answer.ended_ms is None and answer.verdict == Verdict.INCONCLUSIVE:
            answer.ended_ms = self.recorder.now_ms()
            answer.reason = f"not finished: {self.interrupted or 'the run ended'}"
        return answer

    def _empty(self, question: Question) -> record.Step:
        step = question.step
        answer = record.Step(
            id=question.id,
            scenario=question.scenario.id,
            kind="step" if step is not None else "invariant",
            title=question.title,
            source=step.step.source if step is not None else "every event of the scenario",
            verdict=Verdict.INCONCLUSIVE,
        )
        if step is not None:
            answer.errata = list(step.step.errata)
            answer.expected = step.expectation
            answer.oracle = oracle_record(step)
            answer.oracle_differences = oracle_differences(step)
        return answer

    async def _answer(self, question: Question, answer: record.Step) -> None:
        step = question.step
        if step is not None and step.step.not_applicable:
            answer.verdict, answer.reason = Verdict.NOT_APPLICABLE, step.step.not_applicable
        elif self._blocked and (step is not None or question.scenario.id not in self.spans):
            answer.verdict, answer.reason = Verdict.BLOCKED, f"not run: {self._blocked}"
        elif step is None and question.scenario.id not in self.spans:
            answer.verdict, answer.reason = Verdict.NOT_APPLICABLE, "no step of the scenario applies"
        elif step is None:
            self._check(question, answer)
        else:
            await self._perform(question.scenario, step, answer)

    async def _enter(self, question: Question) -> None:
        """Leave the scenarios before, and bring the target into the shape that the next group needs."""
        if self._group is not None:
            await self._leave()
        self._group = question.group
        self._history = []
        self._blocked = self._unusable or (self._blocked if self.options.fail_fast else "")
        if self._blocked:
            return
        try:
            fresh = await self.target.start(question.scenario.cluster)
        except TargetError:
            raise
        except MusterError as error:
            self._unusable = f"the target cannot be used: {error}"
            raise
        if fresh:
            await self._watch.aclose()
            await self._watch.enter_async_context(self.recorder.watching(self.target.transport))
        self._group_from = len(self.recorder.events)

    async def _create_projects(self, scenario: LoadedScenario, answer: record.Step) -> None:
        wanted = {name: quota for name, quota in scenario.quotas_milli.items() if name not in self._created}
        for name, quota in wanted.items():
            self.recorder.project(name, quota)
            self._created.append(name)
        lines = [f"muster project create {name} -g {quota / 1000:g}" for name, quota in wanted.items()]
        await asyncio.gather(*(self._command(line, answer) for line in lines))

        def missing() -> list[str]:
            return [name for name in wanted if not self.recorder.has_namespace(name)]

        reached = await converge(missing, self.recorder.changed, within_ms=SETUP_MS, hold_ms=0)
        if reached.result != CONVERGED:
            raise StepFailed(f"project {missing()[0]} got no namespace within {SETUP_MS / 1000:g} s")

    async def _perform(self, scenario: LoadedScenario, step: LoadedStep, answer: record.Step) -> None:
        self.spans.setdefault(scenario.id, (self.recorder.now_ms(), self.recorder.now_ms()))
        try:
            await self._create_projects(scenario, answer)
            since = len(self.recorder.events)
            for line, action in zip(step.step.run, step.actions, strict=True):
                named = (action.name,) if isinstance(action, Submit) else action.names
                kind = "submit" if isinstance(action, Submit) else "delete"
                self.recorder.command(kind, action.project, named)
                self._history.append(action)
                await self._command(line, answer)
        except StepFailed as failure:
            answer.verdict, answer.reason = Verdict.FAIL, str(failure)
            return
        projects = list(scenario.quotas_milli)

        def present() -> Actual:
            lost = [
                pod.workload for pod in evictions(self.recorder.events[since:]) if pod.project in projects
            ]
            return observe(self.recorder.state, lost, projects)

        def wrong() -> list[str]:
            found = differences(step.expectation, present())
            waiting = found[0] if found else "it holds, seeing that it lasts"
            self.progress.update(f"{answer.id}: {waiting}")
            return found

        within = int(step.within_ms * self.options.patience)
        reached = await converge(
            wrong,
            self._changed,
            within_ms=within,
            hold_ms=step.hold_ms,
            ruled_out=lambda: bool(set(present().evicted) - set(step.expectation.evicted)),
        )
        answer.convergence = reached
        answer.actual = present()
        answer.differences = differences(step.expectation, answer.actual)
        self._judge(answer, reached, excused=bool(step.step.errata))

    def _judge(self, answer: record.Step, reached: record.Convergence, *, excused: bool) -> None:
        within = seconds(reached.within_ms)
        trouble = self.target.trouble()
        if reached.result != CONVERGED:
            answer.verdict = Verdict.FAIL
            answer.reason = f"the expected state was not reached within {within}"
            if reached.result == FLAPPED:
                answer.reason = (
                    f"the expected state was reached but did not last, {reached.flaps} times in {within}"
                )
            if reached.result == RULED_OUT:
                answer.reason = "a workload was evicted that nothing should have been taken from"
            answer.reason += f"; {trouble}" if trouble else ""
        elif answer.oracle_differences and not excused:
            answer.verdict = Verdict.ERROR
            answer.reason = (
                "the scenario expects what quotas and weights do not lead to, and names no erratum"
            )
        else:
            answer.verdict = Verdict.PASS

    async def _changed(self, timeout_ms: int) -> None:
        """The next event; for the display at least every half second."""
        await self.recorder.changed(min(timeout_ms, 500))

    def _check(self, question: Question, answer: record.Step) -> None:
        started, _ = self.spans.get(question.scenario.id, (0, 0))
        before, during = self.recorder.events[: self._group_from], self.recorder.events[self._group_from :]
        nodes = [event for event in before if isinstance(event, NodeSeen)]
        evidence = Evidence([*nodes, *during], self.recorder.now_ms())
        found = [v for v in CHECKS[question.invariant](evidence) if v.t_ms >= started]
        answer.violations = [record.Violation(v.t_ms, v.message) for v in found]
        answer.verdict = Verdict.FAIL if found else Verdict.PASS

    async def _command(self, line: str, answer: record.Step) -> None:
        self.progress.update(f"{answer.id}: {line}")
        done = await run_command(
            line, self.target.kubeconfig, started_ms=self.recorder.now_ms(), timeout_seconds=COMMAND_SECONDS
        )
        answer.commands = [*answer.commands, done]
        if done.exit_code:
            said = (done.stderr or done.stdout).splitlines()
            raise StepFailed(
                f"`{line}` ended with exit code {done.exit_code}: {said[-1] if said else 'no output'}"
            )

    async def _leave(self) -> None:
        """Delete what this group made, and wait until its pods are gone."""
        if not self._created:
            return
        scratch = record.Step(id="cleanup", scenario="", kind="", title="", source="", verdict="")
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

        def left() -> list[str]:
            return [pod.pod for pod in self.recorder.pods_of(set(projects))]

        gone = await converge(left, self._changed, within_ms=CLEANUP_MS, hold_ms=0)
        if gone.result != CONVERGED:
            self._unusable = (
                f"cleaning up failed: pod {left()[0]} is still there after {CLEANUP_MS / 1000:g} s"
            )
        self._created = []

    def _waive(self, answer: record.Step) -> None:
        accepted = self.options.waivers.get(answer.id)
        if accepted and answer.verdict == Verdict.FAIL:
            answer.verdict = Verdict.WAIVED
            answer.reason = f"deviation accepted before the run: {accepted}. {answer.reason}".strip()

    def _tell(self, answer: record.Step) -> None:
        if answer.kind == "invariant" and answer.verdict == Verdict.PASS:
            mine = [
                a for a in self.answers.values() if a.scenario == answer.scenario and a.kind == "invariant"
            ]
            if len(mine) == len(CHECKS):
                held = sum(each.verdict == Verdict.PASS for each in mine)
                self.progress(f"{answer.scenario}: {held} of {len(mine)} invariants held on every event")
            return
        if answer.verdict == Verdict.BLOCKED:
            if answer.reason not in self._told:
                self.progress(f"{answer.id} and what builds on it: {answer.reason}")
            self._told.add(answer.reason)
            return
        took = (answer.ended_ms or 0) - (answer.started_ms or 0)
        self.progress(f"{answer.id}: {answer.verdict} ({seconds(took)})")
        for line in [answer.reason, *answer.differences, *(v.message for v in answer.violations)]:
            if line:
                self.progress(f"    {line}")


class StepFailed(MusterError):
    """The cluster or the command line did not do what the step asked of it."""


def oracle_record(step: LoadedStep) -> record.Oracle:
    """The oracle's division in the form of the report."""
    division = step.division
    return record.Oracle(
        fair_share_gpus={project: str(share / 1000) for project, share in division.fair_share.items()},
        allocated_milli=dict(division.allocated_milli),
        pending=sorted(name for _, name in division.pending),
        running=len(division.running),
    )


def oracle_differences(step: LoadedStep) -> list[str]:
    """Where the scenario's expectation and the oracle's contradict each other."""
    division, asked = step.division, step.expectation
    derived = Actual(
        allocated_milli=dict(division.allocated_milli),
        total_milli=sum(division.allocated_milli.values()),
        pending=tuple(sorted(name for _, name in division.pending)),
        running=len(division.running),
        evicted=(),
        gpus_in_use=0,
        devices={},
    )
    comparable = Expectation(
        allocated_milli=asked.allocated_milli,
        total_milli=asked.total_milli,
        pending=asked.pending,
        running=asked.running,
    )
    return differences(comparable, derived)
