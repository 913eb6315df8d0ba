"""A run from its settings to its report: owns the event loop, the target and the report directory.

The items of pytest are plain functions, so the loop is entered for each question and stands still between
them.
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
from validation.plan import Question, plan
from validation.report.record import Report, Step
from validation.report.write import write
from validation.run import Options, ValidationRun
from validation.scenario.loader import LoadedScenario
from validation.summary import Circumstances, summarize
from validation.targets.base import Target
from validation.targets.cluster import ClusterTarget
from validation.targets.kinds import LAB
from validation.targets.lab import LabTarget

logger = logging.getLogger(__name__)


def run_id(target: str) -> str:
    """A name for a run that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{target}-{secrets.token_hex(2)}"


@dataclass(slots=True)
class Settings:
    """What a user may choose. `out` None: `reports/<run id>` below the working directory."""

    target: str = LAB
    kubeconfig: Path | None = None
    out: Path | None = None
    options: Options = field(default_factory=Options)
    progress: Reporter = field(default_factory=lambda: Reporter(lambda _: None))
    argv: list[str] = field(default_factory=list)


class ValidationSession:
    """One run. Use `ask` for each question, then `close`, which writes the report."""

    def __init__(self, settings: Settings, scenarios: list[LoadedScenario]) -> None:
        self.id = run_id(settings.target)
        self.directory = settings.out or Path("reports") / self.id
        self.questions = plan(scenarios)
        self.report: Report | None = None
        self._settings = settings
        self._started = _now()
        self._kubernetes = "unknown"
        self._described: dict[str, Any] = {"kind": settings.target}
        self._loop = asyncio.Runner()
        self._target = self._make_target()
        self._run = ValidationRun(self._target, self.questions, settings.options, settings.progress)

    def ask(self, question: Question) -> Step:
        """Answer a question, and before it those steps that it builds on and that nobody asked yet."""
        with self._signals():
            for earlier in self.questions[: self.questions.index(question)]:
                same = earlier.group == question.group and earlier.step is not None
                if same and earlier.id not in self._run.answers:
                    self._loop.run(self._run.ask(earlier))
            if question.id in self._run.answers:
                return self._run.answers[question.id]
            return self._loop.run(self._run.ask(question))

    def interrupt(self, why: str) -> None:
        """Remember why the run ends before its plan does."""
        self._run.interrupted = self._run.interrupted or why

    def close(self) -> Report:
        """Give the target back and write the report. Raises ReportError."""
        if self.report is not None:
            return self.report
        try:
            self._loop.run(self._finish())
        except KeyboardInterrupt:
            self.interrupt("interrupted while cleaning up")
        finally:
            circumstances = Circumstances(
                id=self.id,
                argv=self._settings.argv,
                started=self._started,
                ended=_now(),
                kubernetes=self._kubernetes,
                target=self._described,
            )
            self.report = summarize(self._run, circumstances)
            write(self.report, self.directory)
            self._loop.close()
        return self.report

    async def _finish(self) -> None:
        self._described = self._target.describe()
        with contextlib.suppress(ClusterError, TargetError, TimeoutError):
            async with asyncio.timeout(5):
                answer: dict[str, Any] = await self._target.transport.get("/version")
                self._kubernetes = str(answer.get("gitVersion", "unknown"))
        await self._run.finish()

    def _make_target(self) -> Target:
        if self._settings.target == LAB:
            return LabTarget(self.directory, self._settings.progress)
        projects = frozenset(name for question in self.questions for name in question.scenario.quotas_milli)
        return ClusterTarget(self._settings.kubeconfig, projects, self._settings.progress)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGHUP end a question as SIGINT does: cancelled, with everything cleaned up."""

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
