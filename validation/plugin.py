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
from validation.plan import Check, plan
from validation.scenario.loader import SUFFIX, LoadedScenario, find, load, with_predecessors
from validation.session import Settings, ValidationSession
from validation.targets.kinds import CLUSTER, LAB

SETTINGS = pytest.StashKey[Settings]()
SESSION = pytest.StashKey[ValidationSession]()


class CheckNotPassed(AssertionError):
    """The item has a verdict that is not acceptable."""


class CheckItem(pytest.Item):
    """One check of the plan."""

    def __init__(self, *, check: Check, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.check = check

    def runtest(self) -> None:
        """Run the check. Raises CheckNotPassed, or skips what was declared not to apply."""
        result = self.config.stash[SESSION].run(self.check)
        self.user_properties.append(("verdict", str(result.verdict)))
        if result.verdict == Verdict.NOT_APPLICABLE:
            pytest.skip(result.reason)
        if result.verdict not in ACCEPTABLE:
            raise CheckNotPassed(f"{result.verdict}: " + "\n".join(result.reasons))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The reasons alone, without a traceback, for a verdict."""
        if isinstance(excinfo.value, CheckNotPassed | MusterError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File and name, as pytest shows them."""
        return self.path, None, self.check.id


class ScenarioFile(pytest.File):
    """A `*.scenario.yaml`."""

    def collect(self) -> Iterable[CheckItem]:
        """Its steps and invariants. Raises ScenarioError that names file and line."""
        for check in plan(load(find([self.path.parent]))):
            if check.scenario.path == self.path:
                yield CheckItem.from_parent(self, name=check.name, check=check)

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
    """Put the checks in the order of the plan, and open the session that runs them."""
    check_items = [item for item in items if isinstance(item, CheckItem)]
    if not check_items:
        return
    session = ValidationSession(_settings(config), _scenarios(check_items))
    config.stash[SESSION] = session
    order = {check.id: number for number, check in enumerate(session.checks)}
    for item in check_items:
        item.check = session.checks[order[item.check.id]]
    check_items.sort(key=lambda item: order[item.check.id])
    items[:] = [*check_items, *(item for item in items if not isinstance(item, CheckItem))]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the session: stop the target and write the report."""
    opened = session.config.stash.get(SESSION, None)
    if opened is not None and not session.config.option.collectonly:
        opened.close()


def _scenarios(items: list[CheckItem]) -> list[LoadedScenario]:
    """The scenarios of the items and those that they continue, in the order in which they were collected."""
    directories = list(dict.fromkeys(item.path.parent for item in items))
    scenario_ids = {item.check.scenario.id for item in items}
    return with_predecessors(load(find(directories)), scenario_ids)


def _settings(config: pytest.Config) -> Settings:
    settings = config.stash.get(SETTINGS, None)
    if settings is not None:
        return settings
    return Settings(
        target=config.getoption("--muster-target"),
        kubeconfig=config.getoption("--muster-kubeconfig"),
        out=config.getoption("--muster-report"),
        argv=["pytest", *config.invocation_params.args],
    )
