"""`validation.run.first_result`: the planner target's result is shown while the lab's programs are built."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from musterlab import binaries
from orchestrator.progress import Reporter
from tests.musterlab.conftest import World
from tests.validation.test_command import COMMAND
from validation.run import first_result


def test_the_planner_result_comes_before_a_long_build_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.install_go()
    os.mkfifo(tmp_path / "gate")
    process = subprocess.Popen(
        [*COMMAND, "--part", "gangs", "--scenario", "muster-gang"],
        cwd=tmp_path,
        env={
            **world.environment,
            "FAKE_GO_WAITS_FOR": str(tmp_path / "gate"),
            "FAKE_GO_SAYS": "# example.org/one: syntax error",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    seen = ""
    late = threading.Timer(60, process.kill)  # ends the lines if the result is late
    late.start()
    for line in process.stderr:
        seen += line
        if "its result follows" in line:
            break
    late.cancel()
    assert "first result, of the planner alone, without a control plane: PASS of " in seen
    assert "requirements: gangs" in seen
    with (tmp_path / "gate").open("w"):
        pass  # the build continues, and then fails
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    assert "syntax error" in errors
    assert not (tmp_path / "reports").exists()


def test_an_unfinished_result_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs are ready while the planner target still runs its steps."""
    lines: list[str] = []
    started = threading.Event()

    class Planner(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            answer = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(print('{}'))); time.sleep(60)"
            super().__init__([sys.executable, "-c", answer], **options)
            started.set()

    monkeypatch.setattr(binaries, "at_hand", lambda: False)
    monkeypatch.setattr(binaries, "find", lambda _reporter: started.wait(10))
    monkeypatch.setattr(subprocess, "Popen", Planner)
    first_result.prepare_lab((), Reporter(lines.append))
    assert lines == []


def test_nothing_is_shown_if_the_programs_are_there_or_come_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(binaries, "at_hand", lambda: True)
    monkeypatch.setattr(binaries, "find", lambda _reporter: pytest.fail("nothing is to be found"))
    first_result.prepare_lab((), Reporter(lines.append))
    monkeypatch.setattr(binaries, "at_hand", lambda: False)
    monkeypatch.setattr(binaries, "find", lambda _reporter: None)
    first_result.prepare_lab(("--part", "gangs"), Reporter(lines.append))
    assert lines == []
