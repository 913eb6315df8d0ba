"""The pytest plugin: collects scenario files, and turns every step and every invariant into a test.

`muster validate` runs pytest with this plugin. The plugin also works alone: `pytest -p validation.harness.plugin
DIRECTORY`, with pytest's own reports and options such as --junitxml, -k and --collect-only.

Fixtures are not used, because pytest does not request them for items that are not functions. `config.stash` has the
state that the items share.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MusterError
from validation.judge.verdict import ACCEPTABLE, Verdict
from validation.layers.checks import TESTS
from validation.plan.plan_document import document
from validation.planned_checks import Check, plan
from validation.run.session import Settings, ValidationSession, acceptance_of, chosen_size, exit_code
from validation.scenario.loaded import LoadedScenario
from validation.scenario.loader import SUFFIX, find, load, with_predecessors
from validation.scenario.scaling import parse_size
from validation.targets.kinds import LAB, TARGETS

SETTINGS = pytest.StashKey[Settings]()
SESSION = pytest.StashKey[ValidationSession]()
USAGE_ERROR = pytest.StashKey[MusterError]()
"""The error that prevents the run, which `muster validate` prints."""
_COLLECTED = pytest.StashKey[bool]()
_LOADED = pytest.StashKey[dict[tuple[Path, ...], list[LoadedScenario]]]()
NOTHING_TO_RUN = 2


class CheckNotPassed(AssertionError):
    """The item has a verdict that is not acceptable."""


class CheckItem(pytest.Item):
    """One check of the plan."""

    def __init__(self, *, check: Check, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.check = check

    def runtest(self) -> None:
        """Run the check. Raises CheckNotPassed, or skips a check that does not apply."""
        result = self.config.stash[SESSION].run(self.check)
        self.user_properties.append(("verdict", str(result.verdict)))
        if result.verdict == Verdict.NOT_APPLICABLE or not result.required:
            pytest.skip(result.reason)
        if result.verdict not in ACCEPTABLE:
            raise CheckNotPassed(f"{result.verdict}: " + "\n".join(result.reasons))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return only the reasons of a verdict, without a traceback."""
        if isinstance(excinfo.value, CheckNotPassed | MusterError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File and name, as pytest shows them."""
        return self.path, None, self.check.id


class ScenarioFile(pytest.File):
    """A `*.scenario.yaml`."""

    def collect(self) -> Iterable[CheckItem]:
        """Yield the steps and invariants of the file. Raises ScenarioError that names file and line."""
        for check in plan(_loaded(self.config, (self.path.parent,))):
            if check.scenario.path == self.path:
                yield CheckItem.from_parent(self, name=check.name, check=check)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], _style: Any = None) -> Any:
        """Return one line with the error in the file."""
        if isinstance(excinfo.value, MusterError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run that was not started by `muster validate`."""
    group = parser.getgroup("muster", "validation of a GPU cluster")
    group.addoption("--muster-target", choices=TARGETS, default=LAB, help="target of the scenarios")
    group.addoption(
        "--muster-kubeconfig", type=Path, help="access to the cluster, for --muster-target cluster"
    )
    group.addoption("--muster-report", type=Path, help="directory of the report (default: reports/RUN)")
    group.addoption("--muster-profile", default="", help="the kind of site (default: that of the target)")
    group.addoption(
        "--muster-part", action="append", default=[], help="a part of the catalogue (default: all)"
    )
    group.addoption(
        "--muster-site", type=Path, help="site file or directory, whose hosts are examined over SSH"
    )
    group.addoption(
        "--muster-host-test",
        action="append",
        default=[],
        choices=TESTS,
        help="a test that puts a load on the hosts",
    )
    group.addoption(
        "--muster-mount", action="append", default=[], help="mount point of the storage on every host"
    )
    group.addoption("--muster-golden", default="", help="reference host, which the other hosts must equal")
    group.addoption("--muster-baseline", type=Path, help="report of an earlier run on the same site")
    group.addoption("--muster-size", type=parse_size, help="nodes and GPUs of each, such as 8x8")
    group.addoption("--muster-waivers", type=Path, help="file of accepted deviations")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """Collect scenario files."""
    if file_path.name.endswith(SUFFIX):
        parent.config.stash[_COLLECTED] = True
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the checks in the order of the plan, and open the session that runs them."""
    check_items = [item for item in items if isinstance(item, CheckItem)]
    if not check_items:
        return
    try:
        check_items = _open_session(config, check_items)
    except MusterError as error:
        config.stash[USAGE_ERROR] = error
        pytest.exit(f"muster: {error}", returncode=error.exit_code)
    selected = set(check_items)
    config.hook.pytest_deselected(
        items=[item for item in items if isinstance(item, CheckItem) and item not in selected]
    )
    items[:] = [*check_items, *(item for item in items if not isinstance(item, CheckItem))]


def _open_session(config: pytest.Config, items: list[CheckItem]) -> list[CheckItem]:
    """Open the session; return the items of the chosen parts of the catalogue, in the order of the plan."""
    settings = _settings(config)
    acceptance = acceptance_of(settings)
    scenarios = acceptance.select(_scenarios(config, items))
    session = ValidationSession(settings, scenarios)
    order = {check.id: number for number, check in enumerate(session.checks)}
    selected = sorted(
        (item for item in items if item.check.id in order), key=lambda item: order[item.check.id]
    )
    for item in selected:
        item.check = session.checks[order[item.check.id]]
    session.selected = [item.check for item in selected]
    config.stash[SESSION] = session
    return selected


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the session: stop the target, write the report, and end as `muster validate` does."""
    opened = session.config.stash.get(SESSION, None)
    if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and _COLLECTED in session.config.stash:
        session.exitstatus = NOTHING_TO_RUN
    if opened is None or session.config.option.collectonly:
        return
    ended = session.exitstatus
    session.exitstatus = exit_code(opened.close())
    if ended == pytest.ExitCode.TESTS_FAILED and session.exitstatus == 0:
        session.exitstatus = ended  # another test of the same run of pytest failed


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the plan for --collect-only, else the verdict and the directory of the report."""
    opened = config.stash.get(SESSION, None)
    if opened is None:
        return
    if config.option.collectonly:
        terminalreporter.write_line(document(opened.acceptance, opened.selected, opened.site))
    elif opened.report is not None:
        terminalreporter.write_line(f"{opened.report.headline}\n{opened.report.summary}")
        terminalreporter.write_line(f"report: {opened.directory / 'report.html'}")


def _scenarios(config: pytest.Config, items: list[CheckItem]) -> list[LoadedScenario]:
    """Return the scenarios of the items and the scenarios that they continue, in the order of collection."""
    directories = tuple(dict.fromkeys(item.path.parent for item in items))
    scenario_ids = {item.check.scenario.id for item in items}
    return with_predecessors(_loaded(config, directories), scenario_ids)


def _loaded(config: pytest.Config, directories: tuple[Path, ...]) -> list[LoadedScenario]:
    """Return the scenarios in these directories. Each is read once, not again for each of its files."""
    known = config.stash.setdefault(_LOADED, {})
    if directories not in known:
        known[directories] = load(find(list(directories)), chosen_size(_settings(config)))
    return known[directories]


def _settings(config: pytest.Config) -> Settings:
    settings = config.stash.get(SETTINGS, None)
    if settings is not None:
        return settings
    return Settings(
        target=config.getoption("--muster-target"),
        kubeconfig=config.getoption("--muster-kubeconfig"),
        out=config.getoption("--muster-report"),
        profile=config.getoption("--muster-profile"),
        parts=config.getoption("--muster-part"),
        waivers=config.getoption("--muster-waivers"),
        size=config.getoption("--muster-size"),
        site=config.getoption("--muster-site"),
        host_tests=config.getoption("--muster-host-test"),
        mounts=config.getoption("--muster-mount"),
        golden=config.getoption("--muster-golden"),
        baseline=config.getoption("--muster-baseline"),
        argv=["pytest", *config.invocation_params.args],
    )
