"""Runs pytest in this process with muster's plugin only: no configuration file, no other plugins, no terminal
report.
"""

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from validation.errors import ScenarioError
from validation.harness import plugin
from validation.report.record import Report
from validation.run.session import Settings, ValidationSession

if TYPE_CHECKING:
    from orchestrator.errors import MusterError


class _Bridge:
    """Hands the settings to the plugin, and takes the session and unexpected problems from it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.session: ValidationSession | None = None
        self.problem = ""
        self.usage_error: MusterError | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[plugin.SETTINGS] = self._settings

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.session = session.config.stash.get(plugin.SESSION, None)
        self.usage_error = session.config.stash.get(plugin.USAGE_ERROR, None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problem = str(report.longrepr)

    def pytest_exception_interact(
        self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]
    ) -> None:
        if call.excinfo is not None and not isinstance(call.excinfo.value, plugin.CheckNotPassed):
            self._settings.progress(f"{node.name}: {call.excinfo.exconly()}")


def run(files: list[str], settings: Settings) -> tuple[Report, Path]:
    """Run the scenario files and return the report and its directory.

    Raises ScenarioError if there is no step, and the errors of invalid settings.
    """
    bridge = _Bridge(settings)
    _run_pytest(files, bridge)
    if bridge.usage_error is not None:
        raise bridge.usage_error
    if bridge.session is None or bridge.session.report is None:
        raise ScenarioError(bridge.problem or "pytest collected no step")
    return bridge.session.report, bridge.session.directory


def _run_pytest(files: list[str], bridge: _Bridge) -> None:
    arguments = [
        "--disable-plugin-autoload",
        "--import-mode=importlib",
        "-c",
        os.devnull,
        "--rootdir",
        str(Path(files[0]).parent.parent),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminalreporter",
        "-p",
        "no:faulthandler",
        # These two plugins collect the garbage of the process several times at the end, which takes 0.3 s of each run.
        "-p",
        "no:unraisableexception",
        "-p",
        "no:threadexception",
        "--capture=no",
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*arguments, *files], plugins=[plugin, bridge])
