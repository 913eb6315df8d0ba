"""Runs scenarios on a double of a cluster in two ways, by `muster validate` and by pytest, and returns the outcomes."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator.errors import MusterError
from tests.validation import second_judge
from tests.validation.fake_target import FakeTarget
from tests.validation.recorder_double import RecorderDouble
from validation.harness import plugin, pytest_run
from validation.report.record import Report
from validation.run.session import Settings, acceptance_of, exit_code
from validation.scenario.loaded import SHIPPED
from validation.scenario.loader import find, load, select

GANG = SHIPPED / "muster" / "gang.scenario.yaml"
VICTIM = SHIPPED / "muster" / "victim.scenario.yaml"
TR4858 = SHIPPED / "tr4858"


class Outcome(NamedTuple):
    command: int
    pytest: int
    report: Report
    directory: Path


class Stash:
    """A pytest plugin that passes the settings to muster's plugin."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.SETTINGS] = self.settings


def settings(out: Path, target: Callable[[], Any] = FakeTarget, **more: Any) -> Settings:
    return Settings(out=out, open_target=target, open_recorder=RecorderDouble, **more)


def run_command(paths: Sequence[Path], chosen: Settings, *patterns: str) -> tuple[int, Report | None]:
    """Run scenario files as `muster validate` does with these settings; return exit code and report."""
    try:
        scenarios = acceptance_of(chosen).select(
            select(load(find(list(paths)), chosen.size), patterns or ("*",))
        )
        report, _ = pytest_run.run([str(scenario.path) for scenario in scenarios], chosen)
    except MusterError as error:
        return error.exit_code, None
    return exit_code(report), report


def run_pytest(paths: Sequence[Path], chosen: Settings, *arguments: str) -> int:
    fixed = [
        "--disable-plugin-autoload",
        "-c",
        "/dev/null",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminalreporter",
    ]
    fixed += ["--import-mode=importlib", "--capture=no", "--rootdir", str(paths[0].parent)]
    return int(
        pytest.main([*fixed, *arguments, *(str(path) for path in paths)], plugins=[plugin, Stash(chosen)])
    )


def both(
    directory: Path,
    paths: Sequence[Path],
    target: Callable[[], Any] = FakeTarget,
    arguments: Sequence[str] = (),
    **more: Any,
) -> Outcome:
    """Run the scenarios in both ways, and assert that they give the same verdicts."""
    code, report = run_command(paths, settings(directory / "command", target, **more))
    assert report is not None
    other = run_pytest(paths, settings(directory / "pytest", target, **more), *arguments)
    return Outcome(code, other, report, directory / "command")


def verdicts_of_the_report(directory: Path) -> dict[str, Any]:
    """Return the verdicts of the record in the directory, in the form of the second judge."""
    report = json.loads((directory / "report.json").read_bytes())
    return {
        "checks": {step["id"]: step["verdict"] for step in report["steps"]},
        "requirements": {entry["id"]: entry["verdict"] for entry in report["requirements"]},
        "verdict": report["verdict"],
        "acceptance": report["acceptance"],
    }


def assert_second_judge_agrees(directory: Path) -> None:
    """Assert that the second judge reaches the same verdicts on the record in the directory. It imports nothing of
    muster, and runs in this process, because the start of another takes longer than its work.
    """
    report = json.loads((directory / "report.json").read_bytes())
    events = second_judge.read_events(directory, report["volatile"]["events"])
    assert second_judge.judge(report, events) == verdicts_of_the_report(directory)


def assert_check(report: Report, directory: Path, check: str, verdict: str, words: str) -> None:
    """Assert that both judges have this verdict on the check in the record, and that our reasons contain `words`."""
    step = next(step for step in report.steps if step.id == check)
    assert (step.verdict, words in "; ".join(step.reasons)) == (verdict, True), step.reasons
    assert_second_judge_agrees(directory)
