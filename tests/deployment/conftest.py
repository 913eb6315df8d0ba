"""Fixtures: a site for each test, and the real command line."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.cli.main import main
from tests import forks
from tests.deployment.running import inherited

MUSTER = [sys.executable, "-P", "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())"]
TIMEOUT_SECONDS = 900


@dataclass
class SiteUnderTest:
    """A directory with a site file; its journal is in `state`."""

    directory: Path
    state: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.directory / "site.yml"

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def arguments(self, action: str, *more: str) -> list[str]:
        return [*MUSTER, *action.split(), "-i", str(self.directory), "--state-dir", str(self.state), *more]

    def muster(
        self, action: str, *more: str, seconds: float = TIMEOUT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own."""
        return forks.run(
            self.arguments(action, *more)[len(MUSTER) :], inherited() | self.environment, seconds
        )

    def call(self, action: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the command in this process, which is enough if it starts no Ansible."""
        output, errors, before = io.StringIO(), io.StringIO(), dict(os.environ)
        os.environ.update(self.environment)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                code = main(self.arguments(action, *more)[len(MUSTER) :])
        finally:
            os.environ.clear()
            os.environ.update(before)
        return subprocess.CompletedProcess([], code, output.getvalue(), errors.getvalue())

    def start(self, action: str, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.arguments(action, *more),
            env=inherited() | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def site(tmp_path: Path) -> SiteUnderTest:
    directory = tmp_path / "site"
    directory.mkdir()
    made = SiteUnderTest(directory, tmp_path / "state", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    made.write('schema: 1\nname: here\nversions:\n  kubernetes: "1.34.2"\n')
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `installer`, which take minutes, unless the expression of `-m` names the mark."""
    if "installer" in str(config.getoption("markexpr")):
        return
    slow = [item for item in items if item.get_closest_marker("installer")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
