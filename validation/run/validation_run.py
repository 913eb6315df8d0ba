"""One run: the checks of the plan one after the other, on one target, and their results."""

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from orchestrator.errors import MusterError
from orchestrator.progress import Reporter
from validation.errors import MISTAKES, TargetError
from validation.judge.check_verdict import (
    Circumstances,
    Judgement,
    StepWatch,
    Window,
    blocks_later_checks,
    mistake,
    waive,
)
from validation.judge.convergence import Convergence
from validation.judge.scheduling.witnesses import unsettled
from validation.judge.timeline import Timeline
from validation.judge.training.training_job import outputs_of
from validation.judge.units import spell
from validation.judge.verdict import Verdict
from validation.judge.views.lists import is_page
from validation.judge.waivers import Waiver
from validation.layers.checks import AFTER, LAYERS
from validation.layers.tools import TOOLS
from validation.plan.acceptance import Acceptance
from validation.planned_checks import Check
from validation.report import log, record
from validation.report.rejudge import empty_result, judge_result, step_check
from validation.run.converge import converge
from validation.run.image_pulls import pull_before_the_clock
from validation.run.node_groups import NodeGroups
from validation.run.requesting import create_claims, send_requests
from validation.run.result_lines import ResultLines
from validation.run.run_projects import CleanupFailed, RunProjects
from validation.run.sampling import sample_gpus
from validation.run.showing import open_pages, show
from validation.run.step_commands import StepCommands, StepFailed
from validation.run.upkeep import NodeUpkeep
from validation.scenario.commands import Action, Submit
from validation.scenario.images import NO_MAP, images_of, unnamed_image
from validation.scenario.loaded import LoadedScenario, LoadedStep
from validation.targets.base import Target
from validation.targets.recorder import Recorder

if TYPE_CHECKING:
    from validation.targets.hosts import SiteHosts

WITNESS_MS = 20_000
"""Maximum wait for the agents. An agent asks its kubelet every 2 s, and reports changes immediately."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    Every wait is `patience_percent` of its `within`. `waivers` accept failures on the day `today`.
    """

    fail_fast: bool = False
    patience_percent: int = 100
    waivers: Sequence[Waiver] = ()
    today: str = ""


class ValidationRun:
    """Runs checks in order. `results` has their results by check id. The recorder's log has all events."""

    def __init__(
        self,
        target: Target,
        checks: Sequence[Check],
        acceptance: Acceptance,
        options: Options,
        *,
        progress: Reporter,
        recorder: Recorder,
        hosts: "SiteHosts | None" = None,
    ) -> None:
        self.target = target
        self.checks = list(checks)
        self.selected: Sequence[Check] = self.checks
        self.acceptance = acceptance
        self.options = options
        self.progress = progress
        self.recorder = recorder
        self.hosts = hosts
        self.results: dict[str, record.CheckResult] = {}
        self.interrupted = ""
        self._began: dict[str, int] = {}
        self._heard: set[str] = set()
        self._timeline = Timeline(recorder.events)
        self._watch = contextlib.AsyncExitStack()
        self._group: int | None = None
        self._group_from = 0
        self._blocked = ""
        self._unusable = ""
        self._page_fault = ""
        """Why pages cannot be opened; empty if they can."""
        self._history: list[Action] = []
        self._images = hosts.images if hosts is not None else NO_MAP
        self._commands = StepCommands(target, recorder, progress, self._images)
        self._projects = RunProjects(recorder, self._commands, self._wait)
        self._lines = ResultLines(progress, self.checks)
        self._node_groups = NodeGroups(target, recorder, self._wait)
        self._upkeep = NodeUpkeep(target, recorder, self._wait)

    async def run(self, check: Check) -> record.CheckResult:
        """Run one check. Problems of the target are verdicts, not exceptions."""
        result = self.empty(check)
        result.volatile.started_ms = self.recorder.now_ms()
        self.results[check.id] = result
        self.recorder.append(log.CheckBegan(check.id, result.volatile.started_ms))
        try:
            if check.group != self._group:
                await self._enter(check)
                result.volatile.started_ms = self.recorder.now_ms()
            result.circumstances = await self._observe(check, result)
        except MusterError as error:
            result.circumstances = Circumstances(fault=str(error))
        except MISTAKES as error:
            result.circumstances = Circumstances(fault=mistake(error).reason)
            self.progress(f"{check.id}: {''.join(traceback.format_exception(error))}")
        result.volatile.ended_ms = self.recorder.now_ms()
        judgement = self._judge(result)
        if judgement.verdict == Verdict.BLOCKED:
            result.volatile.started_ms = result.volatile.ended_ms = None
        if not self._blocked and blocks_later_checks(
            judgement, is_step=check.step is not None, fail_fast=self.options.fail_fast
        ):
            self._blocked = f"{check.id} is {judgement.verdict}"
        trace = result.volatile
        self.recorder.append(
            log.CheckEnded(
                check.id, result.circumstances, trace.started_ms, trace.ended_ms, trace.commands, trace.window
            )
        )
        self._lines.write(result, self.results)
        return result

    async def finish(self) -> None:
        """Delete the objects of the run, and stop the target."""
        await self._describe()
        self.progress("cleaning up")
        try:
            if self._group is not None and not self.target.disposable:
                await self._leave()
        finally:
            if self.hosts is not None:
                self.hosts.close()
            await self._watch.aclose()
            await self.target.stop()

    async def _describe(self) -> None:
        """Write the present description of the target and its cluster to the log."""
        kubernetes = await self.target.kubernetes()
        products, gpus = self.recorder.nodes, self.recorder.state.nodes
        names = products.keys() | {name for name, number in gpus.items() if number}
        nodes = [
            record.NodeRecord(name=name, gpus=gpus.get(name, 0), product=products.get(name, ""))
            for name in sorted(names)
        ]
        total = sum(node["gpus"] for node in nodes)
        cluster = record.ClusterRecord(kubernetes=kubernetes, gpus=total, nodes=nodes)
        self.recorder.append(log.Described(self.target.describe(), cluster))

    def empty(self, check: Check) -> record.CheckResult:
        """Return the result of the check before it runs."""
        result = empty_result(
            check.id, check.scenario, check.step, check.title, self.options.patience_percent
        )
        result.requirements = self.acceptance.catalogue.proven_by(check.id)
        return result

    def _judge(self, result: record.CheckResult) -> Judgement:
        scope = self.hosts.scope if self.hosts is not None else msgspec.UNSET
        judgement = judge_result(result, self._timeline, scope)
        judgement = waive(judgement, result.id, result.said, self.options.waivers, self.options.today)
        result.verdict, result.reason = judgement.verdict, judgement.reason
        result.required = judgement.required
        return judgement

    async def _observe(self, check: Check, result: record.CheckResult) -> Circumstances:
        """Run the check unless it must not run. `result` gets the observations."""
        not_applicable = self.acceptance.excludes(check.id)
        if check.invariant:
            not_applicable = not_applicable or self.acceptance.excludes_scenario(check.scenario)
        if not_applicable:
            return Circumstances(not_applicable=not_applicable)
        unnamed = unnamed_image(check.scenario, self._images)
        if unnamed:
            return Circumstances(
                unfinished=f"not run: name the image {unnamed} under validation.images of the site file"
            )
        if check.layer:
            return await self._examine(check.layer, result)
        if check.api:
            return await self._request(check, result)
        return await self._observe_jobs(check, result)

    async def _observe_jobs(self, check: Check, result: record.CheckResult) -> Circumstances:
        """Run a step, or a check beside the steps of a scenario, unless a check on which it builds failed."""
        started = check.scenario.id in self._began
        of_jobs = check.step is not None or check.training or check.utilization or check.view
        if self._blocked and (of_jobs or not started):
            return Circumstances(blocked_by=self._blocked)
        if check.step is not None:
            self.progress(f"{check.id}: {check.title}")
            return await self._perform(check.scenario, check.step, result)
        if started and (check.view or check.utilization or result.job is not None):
            self.progress(f"{check.id}: {check.title}")
            await self._gather(check, result)
            return Circumstances()
        if started:
            await self._hear_witnesses(check.scenario.id)
            started_ms = self._began[check.scenario.id]
            start, end = self._group_from, len(self.recorder.events)
            result.volatile.window = Window(start, start, end, started_ms, self.recorder.now_ms())
        return Circumstances()

    async def _request(self, check: Check, result: record.CheckResult) -> Circumstances:
        """Send the requests of the check to the API server."""
        if self._blocked:
            return Circumstances(blocked_by=self._blocked)
        self._begin(check.scenario)
        self.progress.update(f"{check.id}: {check.title}")
        await send_requests(self.recorder, check.api, result, self._group_from, self._images)
        return Circumstances()

    async def _examine(self, layer: str, result: record.CheckResult) -> Circumstances:
        """Run the tools of a layer on all hosts. A load runs only if it was chosen and no check failed before."""
        check = LAYERS[layer]
        if self.hosts is None:
            return Circumstances(unfinished="not run: --site names the hosts")
        if check.test and check.test not in self.hosts.scope.site.tests:
            lasts = spell(check.usual_seconds())
            return Circumstances(
                unfinished=f"not run, as it puts a load on the hosts for about {lasts}: --host-test {check.test}"
            )
        failed = next((other for other in self.results.values() if other.verdict == Verdict.FAIL), None)
        if self.options.fail_fast and self._blocked:
            return Circumstances(blocked_by=self._blocked)
        if check.test and failed is not None:
            return Circumstances(blocked_by=f"{failed.id} is {failed.verdict}")
        again, tools = layer in AFTER, [[tool] for tool in check.tools]
        if not check.test:
            tools = [self.hosts.due(self._quiet_tools(result.scenario, again=again), again=again)]
        lasts = spell(sum(TOOLS[tool].usual_seconds for batch in tools for tool in batch))
        bound = f"; {check.bound(self.hosts.scope.site)}" if check.bound else ""
        self.progress(f"{result.id}: {check.title} (about {lasts}{bound})")
        start, started_ms = len(self.recorder.events), self.recorder.now_ms()
        try:
            for batch in tools:
                await self.hosts.run(batch, self.recorder, again=again)
        finally:
            end, ended_ms = len(self.recorder.events), self.recorder.now_ms()
            result.volatile.window = Window(self._group_from, start, end, started_ms, ended_ms)
        return Circumstances()

    def _quiet_tools(self, scenario: str, *, again: bool) -> list[str]:
        """Return the tools of all chosen layers of the scenario that put no load on the hosts.

        Each host runs them one after another on one channel. With `again`, those that run again after the loads.
        """
        chosen = [
            check.layer
            for check in self.selected
            if check.layer and check.scenario.id == scenario and not self.acceptance.excludes(check.id)
        ]
        quiet = [layer for layer in chosen if not LAYERS[layer].test and (layer in AFTER) == again]
        return [tool for layer in quiet for tool in LAYERS[layer].tools]

    async def _hear_witnesses(self, scenario: str) -> None:
        """Wait until the kubelets have reported every running pod, and agree with the scheduler, once for each
        scenario.

        On nodes without reports, there is no wait.
        """
        if scenario not in self._heard:
            self._heard.add(scenario)
            await self._wait(lambda: [pod.pod for pod in unsettled(self.recorder.state)], WITNESS_MS)

    async def _gather(self, check: Check, result: record.CheckResult) -> None:
        """Collect the evidence of a check beside the steps, in the state after the last step."""
        if check.view:
            if self._page_fault and is_page(check.view):
                raise TargetError(self._page_fault)
            await show(
                self.recorder, self.target, check.view, result, self._group_from, progress=self.progress
            )
        elif check.utilization:
            await sample_gpus(self.recorder, result, self._group_from, self.progress)
        else:
            await self._hear_job(result)

    async def _hear_job(self, result: record.CheckResult) -> None:
        """Wait until every pod of the check's job has ended and left its output; store the window of these events."""
        job = result.job
        if job is None:
            return
        start, started_ms = len(self.recorder.events), self.recorder.now_ms()

        def running() -> list[str]:
            ended = {output.uid for output in outputs_of(job, self.recorder.events)}
            pods = [p for p in self.recorder.pods_of({job.project}) if p.workload == job.workload]
            silent = [pod.pod for pod in pods if pod.uid not in ended]
            return silent if ended or silent else [job.workload]

        await self._wait(running, result.within_ms)
        end, ended_ms = len(self.recorder.events), self.recorder.now_ms()
        result.volatile.window = Window(self._group_from, start, end, started_ms, ended_ms)

    async def _enter(self, check: Check) -> None:
        """Leave the previous group of scenarios, and start the cluster that the group of the check needs."""
        if self._group is not None:
            await self._leave()
        self._group = check.group
        self._history = []
        if check.layer or unnamed_image(check.scenario, self._images):
            self._group_from = 0
            return
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
            await self._watch.enter_async_context(self.target.recording(self.recorder))
            await self._describe()
            await self._pull_images()
        views = [other.view for other in self.checks if other.group == check.group]
        self._page_fault = await open_pages(self.target, views)
        self._group_from = len(self.recorder.events)

    async def _pull_images(self) -> None:
        """Let the nodes pull all images before a step is timed.

        If that fails, raises TargetError, and no step can run.
        """
        scenarios = {check.scenario.id: check.scenario for check in self.checks}
        applying = [
            one
            for one in scenarios.values()
            if not self.acceptance.excludes_scenario(one) and not unnamed_image(one, self._images)
        ]
        names = images_of(applying)
        try:
            await pull_before_the_clock(self.target, self.recorder, self._images, names, self.progress)
        except TargetError as error:
            self._unusable = str(error)
            raise

    async def _perform(
        self, scenario: LoadedScenario, step: LoadedStep, result: record.CheckResult
    ) -> Circumstances:
        """Run the commands of the step and wait for its expectation. `result` gets the observations."""
        ungrouped = await self._node_groups.enter(scenario.node_types)
        if ungrouped:
            return Circumstances(unfinished=ungrouped)
        self._begin(scenario)
        try:
            await self._projects.become(scenario.projects, result)
            if step is scenario.steps[0]:
                problem = await create_claims(self.recorder, scenario.scenario.claims)
                if problem:
                    return Circumstances(failure=problem)
            if scenario.training is not None:
                self.recorder.follow_output(scenario.training.job.project, scenario.training.job.workload)
            await self._upkeep.prepare(step)
            from_event = len(self.recorder.events)
            if step.default_project:
                await self._commands.run(f"muster project set {step.default_project}", result)
            for command in step.commands:
                action = command.action
                workloads = (action.name,) if isinstance(action, Submit) else action.names
                kind = "submit" if isinstance(action, Submit) else "delete"
                self.recorder.command(kind, action.project, workloads)
                self._history.append(action)
                await self._commands.run(command.line, result)
            for line in step.refused:
                await self._commands.run_refused(line, result)
        except StepFailed as failure:
            return Circumstances(failure=str(failure))
        prevented = await self._upkeep.perform(step.upkeep, from_event)
        if prevented != Circumstances():
            return prevented
        await self._settle(result, from_event)
        return Circumstances(target_problem=await self.target.problem())

    def _begin(self, scenario: LoadedScenario) -> None:
        if scenario.id not in self._began:
            self._began[scenario.id] = self.recorder.now_ms()
            self.recorder.append(log.ScenarioBegan(scenario.id, self._began[scenario.id]))

    async def _settle(self, result: record.CheckResult, from_event: int) -> None:
        """Wait until the judge's rule decides the step from the events so far; store the window of these events."""
        events = self.recorder.events
        start_event, started_ms = len(events), self.recorder.now_ms()
        begin = Window(from_event, start_event, start_event, started_ms, started_ms)
        watch = StepWatch(step_check(result), self._timeline, begin)
        convergence = watch.begin()
        until_event, ended_ms = start_event, started_ms
        while convergence is None:
            while convergence is None and until_event < len(events):
                ended_ms = events[until_event].t_ms
                convergence = watch.follow(events[until_event])
                until_event += 1
            if convergence is None:
                ended_ms = self.recorder.now_ms()
                convergence = watch.pass_time(ended_ms)
            if convergence is None:
                lines = watch.differences()
                self.progress.update(
                    f"{result.id}: {lines[0] if lines else 'it holds, seeing that it lasts'}"
                )
                await self._changed(watch.remaining_ms(ended_ms) + 1)
        result.volatile.window = msgspec.structs.replace(begin, until_event=until_event, ended_ms=ended_ms)

    async def _wait(self, differences: Callable[[], list[str]], within_ms: int) -> Convergence:
        """Wait until there are no differences, by the recorder's clock, which the judge uses too."""
        return await converge(
            differences,
            self._changed,
            within_ms=within_ms,
            hold_ms=0,
            clock=lambda: self.recorder.now_ms() / 1000,
        )

    async def _changed(self, timeout_ms: int) -> None:
        """Return at the next event, or after half a second without an event, so that the display changes."""
        await self.recorder.changed(min(timeout_ms, 500))

    async def _leave(self) -> None:
        """Delete the objects of this group, open the nodes that it cordoned, and remove all nodes from its groups."""
        try:
            await self._projects.delete(self._history)
        except CleanupFailed as error:
            self._unusable = f"cleaning up failed: {error}"
        try:
            await self._upkeep.leave()
            await self._node_groups.leave()
        except TargetError as error:
            self._unusable = self._unusable or f"cleaning up failed: {error}"
