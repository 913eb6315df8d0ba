from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cli.main import COMMANDS
from tests.cli.conftest import write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

MUSTER = (sys.executable, "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())")
FOREIGN_OPTIONS = {"agent", "operator", "operator-yaml"}


def test_help_imports_no_command_and_no_transport() -> None:
    script = (
        "import sys; from orchestrator.cli.main import main; main(['--help']); print(*sorted(sys.modules))"
    )
    loaded = _python(script).stdout.splitlines()[-1].split()
    heavy = ("aiohttp", "asyncio", "yaml", "msgspec", "kubernetes", "rich", "jinja2")
    assert [each for each in heavy if each in loaded] == []
    assert [each for each in loaded if each.startswith("orchestrator.cli.")] == [
        "orchestrator.cli.cluster_names",
        "orchestrator.cli.main",
        "orchestrator.cli.message",
        "orchestrator.cli.options",
        "orchestrator.cli.settings",
    ]


def modules_after(*arguments: str) -> set[str]:
    """Return the modules that a process has imported after a command."""
    call = f"main({list(arguments)!r})"
    script = f"import sys; from orchestrator.cli.main import main; {call}; print(*sorted(sys.modules))"
    return set(_python(script).stdout.splitlines()[-1].split())


def test_the_help_of_submit_imports_neither_the_client_nor_the_renderer() -> None:
    unneeded = ("orchestrator.client", "orchestrator.planner", "orchestrator.submit.manifest", "aiohttp")
    assert [name for name in modules_after("submit", "--help") if name.startswith(unneeded)] == []


def test_a_listing_imports_nothing_of_the_planner_and_no_other_command_s_client(
    muster: Callable[..., Outcome], kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert muster("submit", "listed", "-i", "python").code == 0
    unneeded = (
        "orchestrator.planner", "orchestrator.observe.snapshot", "orchestrator.submit.manifest",
        "orchestrator.client.nodes", "orchestrator.client.streams", "orchestrator.cluster.exec_plugin",
    )  # fmt: skip
    modules = modules_after("list")
    assert "orchestrator.cli.job_table" in modules
    assert [name for name in modules if name.startswith(unneeded)] == []


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - FOREIGN_OPTIONS))
def test_every_command_has_help_and_the_common_options(command: str, muster: Callable[..., Outcome]) -> None:
    outcome = muster(command, "--help")
    assert outcome.code == 0
    for option in ("--kubeconfig", "--context", "--project", "--loglevel"):
        assert option in outcome.out


def test_without_arguments_help_is_shown_as_an_error(muster: Callable[..., Outcome]) -> None:
    outcome = muster()
    assert outcome.code == 2
    assert "Usage: muster" in outcome.err


def test_version_short_is_the_first_line(muster: Callable[..., Outcome]) -> None:
    assert muster("version", "--short").lines == muster("version").lines[:1]
    assert muster("version").lines[0].startswith("Version: ")
    assert muster("--version").lines == muster("version").lines[:1]


def test_an_api_server_that_does_not_answer_is_named(tmp_path: Path, muster: Callable[..., Outcome]) -> None:
    path = tmp_path / "nobody"
    write_kubeconfig(path, "http://127.0.0.1:1")
    outcome = muster("delete", "x", "--kubeconfig", str(path))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1
    assert "http://127.0.0.1:1" in outcome.err
    assert "--kubeconfig" in outcome.err


def test_a_missing_kubeconfig_is_named(muster: Callable[..., Outcome]) -> None:
    outcome = muster("list", "--kubeconfig", "/nonexistent/config")
    assert outcome.code == 1
    assert "/nonexistent/config" in outcome.err


def test_a_context_may_be_named_before_or_after_the_command(muster: Callable[..., Outcome]) -> None:
    assert muster("--context", "lab", "list").code == 0
    assert muster("--context", "other", "list", "--context", "lab").code == 0
    outcome = muster("--context", "other", "list")
    assert outcome.code == 1
    assert "other" in outcome.err


@pytest.mark.parametrize(
    ("code", "reason", "said"), [(403, "Forbidden", "denied"), (401, "Unauthorized", "user lab")]
)
def test_a_refusal_of_the_server_is_one_line(
    code: int, reason: str, said: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("GET", "/apis/batch/v1/namespaces/muster-team-a/jobs", code, reason)
    outcome = muster("list")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


def test_a_closed_pipe_is_no_error(kubeconfig: Path, server: MemoryApiServer) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*MUSTER, "list"], stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_while_the_server_is_silent_is_130_and_one_line(tmp_path: Path) -> None:
    path = tmp_path / "silent"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        write_kubeconfig(path, f"http://127.0.0.1:{listener.getsockname()[1]}")
        words = [*MUSTER, "list", "--kubeconfig", str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = listener.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (130, "", "Error: interrupted\n")


def test_the_installed_command_runs(kubeconfig: Path) -> None:
    done = subprocess.run([*MUSTER, "list"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[0] == "Showing jobs for project team-a"


def _python(script: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 30, "check": True} | options
    return subprocess.run([sys.executable, "-c", script], **options)  # noqa: PLW1510


def test_help_describes_the_commands_of_other_packages(muster: Callable[..., Outcome]) -> None:
    lines = {each.split()[0]: each for each in muster("--help").out.splitlines() if each.strip()}
    assert "control plane" in lines["lab"]
    assert "requirements" in lines["validate"]
    assert "From " not in "".join(lines[each] for each in ("lab", "validate", "install", "matrix"))


@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_groups_every_command_and_imports_no_module_of_another_package(columns: str) -> None:
    script = """
import sys
from orchestrator.cli.main import main, muster
main(["--help"])
print(*muster.list_commands(None))
print(*(name for name in sys.modules if name.startswith(("deployment.", "musterlab.", "musterweb.", "validation."))))
"""
    text = _python(script, env={**os.environ, "COLUMNS": columns}).stdout
    help_text, names, imported = text.removesuffix("\n").rsplit("\n", 2)
    sections = help_text.split("\n\n")[-4:]
    assert [section.split()[0] for section in sections] == ["Researcher", "Administrator", "Site", "Proof"]
    listed = [re.findall(r"^  (\S+) ", section, re.MULTILINE) for section in sections]
    assert all(rows == sorted(rows) for rows in listed)
    assert sorted(name for rows in listed for name in rows) == names.split()
    for rows, name in zip(listed, ["submit", "project", "install", "validate"], strict=True):
        assert name in rows
    assert "web" in listed[1]
    assert imported == ""
    assert max(map(len, help_text.splitlines())) <= int(columns)
