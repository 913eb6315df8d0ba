"""Runs of `muster validate` with an operator of the test's choice, on a cluster with doubles of kubelets."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import MUSTER, muster
from validation.report.assemble import read_report
from validation.report.record import Report

SCENARIO = "muster-victim"


@dataclass(frozen=True)
class Validation:
    """The outcome of a run, and its record."""

    exit_code: int
    output: str
    report: Report

    def step(self, check: str) -> tuple[str, str]:
        """Return the verdict on a check of the scenario, and all its reasons."""
        step = next(step for step in self.report.steps if step.id == f"{SCENARIO}/{check}")
        return step.verdict, "\n".join(step.reasons)

    def requirement(self, name: str) -> str:
        """Return the verdict on a requirement."""
        return next(entry.verdict for entry in self.report.requirements if entry.id == name)


def validate(kubeconfig: Path, out: Path) -> Validation:
    """Run the scenario with the running operator. Its waits are short for states that are never reached."""
    command = ("validate", "--target", "cluster", "--profile", "current", "--scenario", SCENARIO)
    done = muster(kubeconfig, *command, "--patience", "0.4", "--out", str(out))
    assert done.returncode in (0, 1), done.stderr
    return Validation(done.returncode, done.stdout + done.stderr, read_report(out))


@contextmanager
def operator(account: Path, log: Path, orchestrator: Path | None = None) -> Iterator[None]:
    """Run the operator of this checkout, or the one in a directory, during the block."""
    environment = {**os.environ, "KUBECONFIG": str(account), "POD_NAME": "operator-0"}
    if orchestrator is not None:
        environment["PYTHONPATH"] = str(orchestrator)
    with process([*MUSTER, "operator"], environment, log):
        yield


@contextmanager
def process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run a program during the block, and end it."""
    with log.open("ab") as output:
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
        assert running.poll() is None, log.read_text()
    finally:
        running.terminate()
        running.wait(timeout=DEADLINE_SECONDS)
