from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.memory_api_server import namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

MUSTER = (sys.executable, "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())")


@pytest.fixture
def complete(kubeconfig: Path) -> Callable[[str], list[str]]:
    """Return a function that asks for completions as a shell does: from the words so far, of which the last is
    incomplete.
    """

    def complete(line: str) -> list[str]:
        words = line.split(" ")
        environment = {
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_MUSTER_COMPLETE": "bash_complete",
        }
        done = subprocess.run(
            MUSTER, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stderr == ""
        return [each.partition(",")[2] for each in done.stdout.splitlines() if each]

    return complete


def test_names_in_the_cluster_are_completed(
    complete: Callable[[str], list[str]], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "train-1", "-i", "image")
    muster("submit", "note-1", "-i", "image", "--interactive")
    muster("submit", "foreign", "-i", "image", "-p", "team-b")
    muster("template", "create", "small", "--set", "gpu=1")
    assert complete("muster delete ") == ["note-1", "train-1"]
    assert complete("muster delete note-1 t") == ["train-1"]
    assert complete("muster suspend -p team-b ") == ["foreign"]
    assert complete("muster list -p ") == ["team-a", "team-b"]
    assert complete("muster get node ") == ["dgx1-1", "dgx1-2"]
    assert complete("muster describe no") == ["node", "note-1"]
    assert complete("muster template get s") == ["small"]
    assert complete("muster --context ") == ["lab"]
    assert complete("muster config project team-") == ["team-a", "team-b"]
    assert [each[0] for each in server.requests if each[0] != "GET"] == ["POST"] * 4


@pytest.mark.parametrize("command", ["logs", "bash", "exec", "attach", "port-forward"])
def test_the_jobs_are_completed_for_every_command_that_takes_one(
    command: str, complete: Callable[[str], list[str]], muster: Callable[..., Outcome]
) -> None:
    muster("submit", "train-1", "-i", "image")
    assert complete(f"muster {command} ") == ["train-1"]


def test_commands_flags_and_their_values_are_completed(complete: Callable[[str], list[str]]) -> None:
    assert complete("muster top ") == ["job", "node"]
    assert complete("muster list --no-") == ["--no-headers"]
    assert complete("muster list -o ") == ["json", "yaml", "name", "wide"]
    assert "nodes" in complete("muster list n")


def test_a_cluster_that_does_not_answer_completes_nothing_and_says_nothing(
    complete: Callable[[str], list[str]], server: MemoryApiServer
) -> None:
    server.refuse("GET", "/apis/batch/v1/namespaces/muster-team-a/jobs", 403, "Forbidden")
    assert complete("muster delete ") == []
    os.environ["KUBECONFIG"] = "/nonexistent"
    assert complete("muster delete ") == []


def test_a_line_that_is_wrong_so_far_is_completed_nonetheless(
    complete: Callable[[str], list[str]], server: MemoryApiServer
) -> None:
    server.add(namespace_of("team-c"))
    assert complete("muster list --no-headers=perhaps -o js") == ["json"]
    assert complete("muster delete -p x,y ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_calls_muster(shell: str, muster: Callable[..., Outcome]) -> None:
    outcome = muster("completion", shell)
    assert outcome.code == 0
    assert f"_MUSTER_COMPLETE={shell}_complete" in outcome.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_understands_the_script(muster: Callable[..., Outcome], tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(muster("completion", "bash").out)
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source {script} && complete -p muster"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "muster" in done.stdout


def test_completing_imports_neither_the_transport_nor_the_planner(kubeconfig: Path) -> None:
    script = (
        "import sys, os; os.environ['_MUSTER_COMPLETE']='bash_complete'; "
        "os.environ['COMP_WORDS']='muster delete '; os.environ['COMP_CWORD']='2'\n"
        "from orchestrator.cli.main import main\n"
        "try:\n  main()\nexcept SystemExit:\n  print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert [each for each in ("aiohttp", "msgspec", "kubernetes", "rich") if each in loaded] == []
    assert [each for each in loaded if each.startswith("orchestrator.planner")] == []
