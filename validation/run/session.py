"""A run from its settings to its report: owns the event loop, the target and the report directory.

The items of pytest are plain functions, so the event loop runs during each check and is paused in between.
"""

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from orchestrator.progress import Reporter
from validation.catalogue.catalogue import PATH as CATALOGUE
from validation.catalogue.waivers import load_waivers
from validation.errors import HostError, ReportError, TargetError
from validation.judge.hosts.host_layer import HostSite
from validation.judge.verdict import ACCEPTABLE_RUNS, Verdict
from validation.plan.acceptance import Acceptance, open_acceptance
from validation.planned_checks import Check, plan
from validation.report.assemble import assemble
from validation.report.baseline import BaselineError, read_baseline
from validation.report.beside import digests
from validation.report.log import Closed, open_log, read_log
from validation.report.record import CheckResult, Report, Run
from validation.report.write import withdraw, write
from validation.run.in_service import ReservedNodes, deviation, only_taken
from validation.run.summary import opening
from validation.run.validation_run import Options, ValidationRun
from validation.scenario.loaded import LoadedScenario
from validation.scenario.scaling import Size
from validation.targets.base import Target
from validation.targets.cluster import ClusterTarget
from validation.targets.kinds import CLUSTER, LAB, PLANNER, REAL_LAB
from validation.targets.lab import LabTarget
from validation.targets.operator_process import OperatorProcess, changed_operator
from validation.targets.planner import PlannerTarget, SimulatedRecorder
from validation.targets.real_lab import RealLabTarget, RealNodes
from validation.targets.recorder import Recorder, wall_clock

if TYPE_CHECKING:
    from validation.judge.waivers import Waiver
    from validation.targets.hosts import SiteHosts

INTERRUPTED = 130
STOP_SECONDS = 6.0
"""Time until a load of an interrupted run has ended on its host: `timeout` sends KILL 5 s after TERM."""


def exit_code(report: Report) -> int:
    """Return the exit code of `muster validate` and of pytest: 0 only if the verdict is PASS or WAIVED.

    A run in service is not an acceptance, so its exit code is 1 only for FAIL and ERROR.
    """
    if report.interrupted:
        return INTERRUPTED
    if report.scope.hosts and report.scope.hosts.site.busy is not msgspec.UNSET:
        return 1 if report.verdict in {Verdict.FAIL, Verdict.ERROR} else 0
    return 0 if report.verdict in ACCEPTABLE_RUNS else 1


def run_id(target: str, started: str) -> str:
    """Return a name for a run. The names of runs sort by the start of the run."""
    day, _, hour = started.removesuffix("Z").partition("T")
    return f"{day.replace('-', '')}-{hour.replace(':', '')}-{target}-{secrets.token_hex(2)}"


@dataclass(slots=True)
class Settings:
    """The settings that a user may choose.

    - `out`: the directory of the report; None: `reports/<run id>` below the working directory.
    - `size`: the size of the site; None: the size in the site file, else the printed size of the scenarios.
    - `profile`: empty: the profile of the target. `parts`: empty: the whole catalogue.
    - `site`: names the hosts. `host_tests` are the loads that may be put on them, `mounts` their mounts of the
      storage, and `golden` the host that the others must equal. `baseline`: an earlier record of the site.
    - `in_service`: examine only hosts that can be reserved, because the cluster has users.
    - `real_nodes`: the real nodes of the lab; None: simulated nodes, and the operator as a process.
    - `open_target`, `open_recorder`, `open_hosts`: functions that return another target, another recorder, other hosts.
    """

    target: str = LAB
    kubeconfig: Path | None = None
    real_nodes: RealNodes | None = None
    size: Size | None = None
    site: Path | None = None
    host_tests: Sequence[str] = ()
    mounts: Sequence[str] = ()
    golden: str = ""
    baseline: Path | None = None
    in_service: bool = False
    out: Path | None = None
    profile: str = ""
    parts: Sequence[str] = ()
    waivers: Path | None = None
    patience_percent: int = 100
    fail_fast: bool = False
    open_target: Callable[[], Target] | None = None
    open_recorder: Callable[[], Recorder] | None = None
    open_hosts: "Callable[[], SiteHosts] | None" = None
    catalogue: Path = CATALOGUE
    progress: Reporter = field(default_factory=lambda: Reporter(lambda _: None))
    argv: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The kind of the target, as profiles and the record name it."""
        return self.target if self.real_nodes is None else REAL_LAB


def acceptance_of(settings: Settings) -> Acceptance:
    """Return the requirements that a run with these settings must prove. Raises CatalogueError."""
    return open_acceptance(settings.profile, settings.parts, settings.kind, settings.catalogue)


def chosen_size(settings: Settings) -> Size | None:
    """Return the size for which scenarios are scaled: the size of the real nodes, the chosen size, or the size of the
    site's hosts. None: not scaled.

    Raises HostError, SiteError.
    """
    if settings.real_nodes is not None:
        return settings.real_nodes.size
    if settings.size is not None or settings.site is None or settings.target != CLUSTER:
        return settings.size
    hosts = site_hosts(settings)
    counts = {host.gpus for host in hosts.scope.site.hosts} if hosts is not None else set()
    if hosts is None or len(counts) != 1 or not min(counts):
        return None
    return Size(len(hosts.scope.site.hosts), counts.pop())


def site_hosts(settings: Settings) -> "SiteHosts | None":
    """Return the hosts of the site; None without a site. Raises HostError, SiteError, BaselineError."""
    if settings.open_hosts is not None:
        return settings.open_hosts()
    if settings.site is None:
        if settings.host_tests or settings.mounts or settings.golden or settings.baseline:
            raise HostError(
                "--host-test, --mount, --golden and --baseline are about the hosts of a site: --site names it"
            )
        return None
    if settings.target != CLUSTER:
        raise HostError(f"--site is for --target {CLUSTER}: a {settings.target} has no hosts")
    from validation.targets.hosts import read_site  # noqa: PLC0415 - needs the extra deployment

    hosts = read_site(
        settings.site, golden=settings.golden, tests=settings.host_tests, mounts=settings.mounts
    )
    if settings.baseline is not None:
        if settings.out is not None and settings.out.resolve() == settings.baseline.resolve():
            raise BaselineError(
                f"--baseline {settings.baseline}: is also --out, which the run replaces; give another --out"
            )
        baseline = read_baseline(settings.baseline, hosts.scope)
        if baseline.started > wall_clock():
            raise BaselineError(
                f"--baseline {settings.baseline}: started at {baseline.started}, which is not yet; set the clock"
            )
        hosts.scope = msgspec.structs.replace(hosts.scope, baseline=baseline)
    return hosts


class ValidationSession:
    """One run. Use `run` for each check, then `close`, which writes the report."""

    def __init__(self, settings: Settings, scenarios: list[LoadedScenario]) -> None:
        self._started = wall_clock()
        self.id = run_id(settings.kind, self._started)
        self.directory = settings.out or Path("reports") / self.id
        self.checks = plan(scenarios)
        self.acceptance = acceptance_of(settings)
        self.report: Report | None = None
        self._settings = settings
        self._target_timings: dict[str, str] = {}
        self._loop = asyncio.Runner()
        self._target = self._make_target()
        options, recorder, hosts = self._options(), self._make_recorder(), site_hosts(settings)
        self._reserved = self._reserve(hosts) if settings.in_service and hosts is not None else None
        self._run = ValidationRun(
            self._target,
            self.checks,
            self.acceptance,
            options,
            progress=settings.progress,
            recorder=recorder,
            hosts=hosts,
        )
        if self._reserved is not None:
            self._reserved.watch(self.interrupt)

    @property
    def selected(self) -> Sequence[Check]:
        """The checks that this run was asked for; at first all."""
        return self._run.selected

    @selected.setter
    def selected(self, checks: Sequence[Check]) -> None:
        self._run.selected = checks

    @property
    def site(self) -> HostSite | None:
        """The hosts that the site declares; None without a site."""
        return self._run.hosts.scope.site if self._run.hosts is not None else None

    def run(self, check: Check) -> CheckResult:
        """Run a check. The earlier steps of its group run first, if they have not run yet."""
        self._open_log()
        with self._signals():
            for earlier in self.checks[: self.checks.index(check)]:
                builds_on_it = earlier.group == check.group and earlier.step is not None
                if builds_on_it and earlier.id not in self._run.results:
                    self._loop.run(self._run.run(earlier))
            if check.id in self._run.results:
                return self._run.results[check.id]
            return self._loop.run(self._run.run(check))

    def interrupt(self, why: str) -> None:
        """Record why the run ends before all checks ran; the first reason counts."""
        self._run.interrupted = self._run.interrupted or why

    def close(self) -> Report:
        """Clean up, stop the target and write the report. Raises ReportError."""
        if self.report is not None:
            return self.report
        self._open_log()
        try:
            self._loop.run(self._finish())
        except KeyboardInterrupt:
            self.interrupt("interrupted while cleaning up")
        finally:
            self._loop.close()
            self._give_nodes_back()
            recorder = self._run.recorder
            ended = recorder.wall_clock()
            recorder.append(
                Closed(
                    ended,
                    recorder.now_ms(),
                    self._target_timings,
                    self._run.interrupted,
                    self._files_beside(),
                )
            )
            recorder.close_log()
            self.report = assemble(read_log(self.directory))
            write(self.report, self.directory)
        return self.report

    def _files_beside(self) -> dict[str, str]:
        """Return the digests of the files of this run beside the report; empty if they cannot be read."""
        try:
            return digests(self.directory)
        except ReportError:
            return {}  # the report cannot be written then either, and that error has the reason

    def _open_log(self) -> None:
        """Begin the log, unless it has begun. Remove the files of an earlier run in the directory first."""
        if self._run.recorder.logs:
            return
        withdraw(self.directory)
        started = Run(self.id, self._settings.argv, self._started, ended="", duration_ms=0)
        opened = opening(self._run, self.selected, started, self._deviations())
        self._run.recorder.log_to(open_log(self.directory, opened))

    async def _finish(self) -> None:
        self._target_timings = self._target.timings()
        await self._run.finish()

    def _options(self) -> Options:
        """Return the options of the run. Raises WaiverError for a waiver that cannot be accepted today."""
        settings, today = self._settings, date.fromisoformat(self._started[:10])
        waivers: list[Waiver] = []
        if settings.waivers is not None:
            known = {check.id for check in self.checks} | set(self.acceptance.check_ids)
            waivers = load_waivers(settings.waivers, known, today)
        return Options(settings.fail_fast, settings.patience_percent, waivers, today.isoformat())

    def _deviations(self) -> list[str]:
        """Return why the run cannot be an acceptance even if all checks pass."""
        changed = changed_operator() if self._settings.target == LAB else ""
        hosts = self._run.hosts
        examined = [deviation(hosts.scope)] if self._reserved is not None and hosts is not None else []
        return [*([changed] if changed else []), *examined]

    def _reserve(self, hosts: "SiteHosts") -> ReservedNodes:
        """Reserve the idle nodes of the hosts, and leave out the others. Raises TargetError."""
        reserved = ReservedNodes(self._settings.kubeconfig, self.id, self._settings.progress)
        busy = reserved.take([host.name for host in hosts.scope.site.hosts])
        hosts.scope = only_taken(hosts.scope, busy)
        return reserved

    def _give_nodes_back(self) -> None:
        """Give the reserved nodes back, after all tools on them have ended."""
        if self._reserved is not None:
            if self._run.interrupted:
                time.sleep(STOP_SECONDS)
            try:
                self._reserved.close()
            except TargetError as error:
                self.interrupt(str(error))
                self._settings.progress(str(error))

    def _make_target(self) -> Target:
        if self._settings.open_target is not None:
            return self._settings.open_target()
        progress, nodes = self._settings.progress, self._settings.real_nodes
        projects = frozenset(name for check in self.checks for name in check.scenario.quotas_milli)
        if nodes is not None:
            return RealLabTarget(nodes, projects, self.directory, progress)
        if self._settings.target == LAB:
            return LabTarget(OperatorProcess(self.directory, progress), self.directory, progress)
        if self._settings.target == PLANNER:
            return PlannerTarget()
        return ClusterTarget(self._settings.kubeconfig, projects, progress)

    def _make_recorder(self) -> Recorder:
        if self._settings.open_recorder is not None:
            return self._settings.open_recorder()
        return SimulatedRecorder() if self._settings.target == PLANNER else Recorder()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGHUP cancel a check as SIGINT does, with all cleanup."""

        def interrupted(number: int, _frame: object) -> None:
            self.interrupt(f"interrupted by {signal.Signals(number).name}")
            signal.raise_signal(signal.SIGINT)

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        except KeyboardInterrupt:
            self.interrupt("interrupted by SIGINT")
            raise
        except Exception as error:
            self.interrupt(f"a mistake in muster: {type(error).__name__}: {error}")
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
