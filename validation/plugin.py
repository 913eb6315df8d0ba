"""The pytest plugin: scenario files are collected, and every step and every invariant is a test of its own.

`muster validate` runs pytest with it. It works by itself, too: `pytest -p validation.plugin DIRECTORY`,
with pytest's own reports and options such as --junitxml, -k and --collect-only.

Fixtures are not used: pytest does not request them for items that are not functions. What the items share
lives in `config.stash`.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MusterError
from validation.judge.verdict import ACCEPTABLE, Verdict
from validation.plan import Question, plan
from validation.scenario.loader import SUFFIX, LoadedScenario, find, load, with_predecessors
from validation.session import Settings, ValidationSession
from validation.targets.kinds import CLUSTER, LAB

SETTINGS = pytest.StashKey[Settings]()
SESSION = pytest.StashKey[ValidationSession]()


class StepNotPassed(AssertionError):
    """The item has a verdict that is not acceptable."""


class StepItem(pytest.Item):
    """One question of the plan."""

    def __init__(self, *, question: Question, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.question = question

    def runtest(self) -> None:
        """Ask it. Raises StepNotPassed, or skips what was declared not to apply."""
        answer = self.config.stash[SESSION].ask(self.question)
        self.user_properties.append(("verdict", str(answer.verdict)))
        if answer.verdict == Verdict.NOT_APPLICABLE:
            pytest.skip(answer.reason)
        if answer.verdict not in ACCEPTABLE:
            reasons = [answer.reason, *answer.differences, *(each.message for each in answer.violations)]
            raise StepNotPassed(f"{answer.verdict}: " + "\n".join(reason for reason in reasons if reason))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The reasons alone, without a traceback, for a verdict."""
        if isinstance(excinfo.value, StepNotPassed | MusterError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File and name, as pytest shows them."""
        return self.path, None, self.question.id


class ScenarioFile(pytest.File):
    """A `*.scenario.yaml`."""

    def collect(self) -> Iterable[StepItem]:
        """Its steps and invariants. Raises ScenarioError that names file and line."""
        for question in plan(load(find([self.path.parent]))):
            if question.scenario.path == self.path:
                yield StepItem.from_parent(self, name=question.name, question=question)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], _style: Any = None) -> Any:
        """One line for what is wrong with the file."""
        if isinstance(excinfo.value, MusterError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run that was not started by `muster validate`."""
    group = parser.getgroup("muster", "validation of a GPU cluster")
    group.addoption(
        "--muster-target", choices=(LAB, CLUSTER), default=LAB, help="what the scenarios run against"
    )
    group.addoption(
        "--muster-kubeconfig", type=Path, help="access to the cluster, for --muster-target cluster"
    )
    group.addoption("--muster-report", type=Path, help="directory of the report (default: reports/RUN)")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """Collect scenario files."""
    if file_path.name.endswith(SUFFIX):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the questions in the order of the plan, and open the session that answers them."""
    asked = [item for item in items if isinstance(item, StepItem)]
    if not asked:
        return
    session = ValidationSession(_settings(config), _scenarios(asked))
    config.stash[SESSION] = session
    place = {question.id: number for number, question in enumerate(session.questions)}
    for item in asked:
        item.question = session.questions[place[item.question.id]]
    asked.sort(key=lambda item: place[item.question.id])
    items[:] = [*asked, *(item for item in items if not isinstance(item, StepItem))]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the target back and write the report."""
    opened = session.config.stash.get(SESSION, None)
    if opened is not None and not session.config.option.collectonly:
        opened.close()


def _scenarios(items: list[StepItem]) -> list[LoadedScenario]:
    """The scenarios of the items and those that they continue, in the order in which they were collected."""
    directories = list(dict.fromkeys(item.path.parent for item in items))
    wanted = {item.question.scenario.id for item in items}
    return with_predecessors(load(find(directories)), wanted)


def _settings(config: pytest.Config) -> Settings:
    given = config.stash.get(SETTINGS, None)
    if given is not None:
        return given
    return Settings(
        target=config.getoption("--muster-target"),
        kubeconfig=config.getoption("--muster-kubeconfig"),
        out=config.getoption("--muster-report"),
        argv=["pytest", *config.invocation_params.args],
    )
