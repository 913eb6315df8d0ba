"""The report of a finished stage: its result, its hosts, the cause, and the command to continue."""

from dataclasses import dataclass
from pathlib import Path

from deployment.errors import StageFailed
from deployment.journal import FAILED, INTERRUPTED
from deployment.request import Request
from deployment.runner import Outcome
from orchestrator.progress import Reporter


@dataclass(frozen=True)
class StageReport:
    """The report on one stage of a run; `log` is the stage's log."""

    request: Request
    progress: Reporter
    outcome: Outcome
    log: Path

    def say_end(self, label: str, result: str) -> None:
        """Print the number of changes for each host, and the result of the stage."""
        for host, counts in sorted(self.outcome.hosts.items()):
            bad = counts["failures"] + counts["dark"]
            would = "would change" if self.request.check else "changed"
            summary = f"{counts['ok']} ok, {counts['changed']} {would}" + (f", {bad} failed" if bad else "")
            self.progress(f"{label}: {host}: {summary}")
        for line in self.outcome.kept_objects:
            self.progress(f"{label}: {line}")
        self.progress(f"{label}: {result if not self.request.check or result == FAILED else 'checked'}")

    def say_failures(self) -> None:
        """Print the failures, and the path of the log."""
        for failure in self.outcome.failures:
            for line in failure.lines():
                self.progress(f"  {line}")
        if self.outcome.problem:
            self.progress(f"  error   {self.outcome.problem}")
        self.progress(f"  log     {self.log}")

    def error(self, stage: str, result: str) -> StageFailed:
        """Print the failures, unless the stage was interrupted. Return the error that ends the run."""
        resume = self.request.command()
        if result == INTERRUPTED:
            return StageFailed(f"stage {stage} was interrupted; continue with: {resume}")
        self.say_failures()
        hosts = sorted({failure.host for failure in self.outcome.failures})
        where = f" on {', '.join(hosts)}" if hosts else ""
        if self.request.check:
            return StageFailed(f"the check of stage {stage} failed{where}; nothing was changed")
        return StageFailed(
            f"stage {stage} failed{where}; after you have removed the cause, continue with: {resume}"
        )
