"""A run from its settings to its report: owns the event loop, the target and the report directory.

The items of pytest are plain functions, so the event loop runs for one check and stands still until the next.
"""

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.cluster.errors import ClusterError
from orchestrator.progress import Reporter
from validation.errors import TargetError
from validation.plan import Check, plan
from validation.report.record import CheckResult, Report
from validation.report.write import write
from validation.run import Options, ValidationRun
from validation.scenario.loader import LoadedScenario
from validation.summary import RunMetadata, summarize
from validation.targets.base import Target
from validation.targets.cluster import ClusterTarget
from validation.targets.kinds import LAB
from validation.targets.lab import LabOperator, LabTarget
from validation.targets.operator_deployment import OperatorDeployment, OperatorImage
from validation.targets.operator_process import OperatorProcess

logger = logging.getLogger(__name__)


def run_id(target: str) -> str:
    """A name for a run that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{target}-{secrets.token_hex(2)}"


@dataclass(slots=True)
class Settings:
    """What a user may choose. `out` None: `reports/<run id>` below the working directory.

    `image` is that of the lab's operator; None: the operator of this installation, as a process.
    """

    target: str = LAB
    kubeconfig: Path | None = None
    image: OperatorImage | None = None
    out: Path | None = None
    options: Options = field(default_factory=Options)
    progress: Reporter = field(default_factory=lambda: Reporter(lambda _: None))
    argv: list[str] = field(default_factory=list)


class ValidationSession:
    """One run. Use `run` for each check, then `close`, which writes the report."""

    def __init__(self, settings: Settings, scenarios: list[LoadedScenario]) -> None:
        self.id = run_id(settings.target)
        self.directory = settings.out or Path("reports") / self.id
        self.checks = plan(scenarios)
        self.report: Report | None = None
        self._settings = settings
        self._started = _now()
        self._kubernetes = "unknown"
        self._described: dict[str, Any] = {"kind": settings.target}
        self._loop = asyncio.Runner()
        self._target = self._make_target()
        self._run = ValidationRun(self._target, self.checks, settings.options, settings.progress)

    def run(self, check: Check) -> CheckResult:
        """Run a check, and before it those steps of its group that come before it and have not run yet."""
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
        try:
            self._loop.run(self._finish())
        except KeyboardInterrupt:
            self.interrupt("interrupted while cleaning up")
        finally:
            metadata = RunMetadata(
                id=self.id,
                argv=self._settings.argv,
                started=self._started,
                ended=_now(),
                kubernetes=self._kubernetes,
                target=self._described,
            )
            self.report = summarize(self._run, metadata)
            write(self.report, self.directory)
            self._loop.close()
        return self.report

    async def _finish(self) -> None:
        self._described = self._target.describe()
        with contextlib.suppress(ClusterError, TargetError, TimeoutError):
            async with asyncio.timeout(5):
                version: dict[str, Any] = await self._target.transport.get("/version")
                self._kubernetes = str(version.get("gitVersion", "unknown"))
        await self._run.finish()

    def _make_target(self) -> Target:
        if self._settings.target == LAB:
            progress, image = self._settings.progress, self._settings.image
            operator: LabOperator = (
                OperatorProcess(self.directory, progress)
                if image is None
                else OperatorDeployment(image, self.directory, progress)
            )
            return LabTarget(operator, self.directory, progress)
        projects = frozenset(name for check in self.checks for name in check.scenario.quotas_milli)
        return ClusterTarget(self._settings.kubeconfig, projects, self._settings.progress)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGHUP end a check as SIGINT does: cancelled, with everything cleaned up."""

        def interrupted(number: int, _frame: object) -> None:
            self.interrupt(f"interrupted by {signal.Signals(number).name}")
            signal.raise_signal(signal.SIGINT)

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        except KeyboardInterrupt:
            self.interrupt("interrupted by SIGINT")
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
