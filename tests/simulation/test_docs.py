"""The worked example of docs/how-to/simulate.md: every command in it prints what stands there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from orchestrator.cli.main import main

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "simulate.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
CONSOLES = re.findall(r"```console\n\$ muster ([^\n]*)\n(.*?)```", TEXT, re.DOTALL)


def test_the_page_has_two_files_and_some_commands() -> None:
    assert (len(EXAMPLE), len(CONSOLES)) == (2, 3)


def test_one_pod_of_the_template_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(EXAMPLE[1])
    assert main(["simulate", str(path), "--until-stable", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [[pod["node"] for pod in each["pods"]] for each in result["wouldRun"]] == [["n1"]]
    assert [each["pods"] for each in result["wouldWait"]] == [1]


@pytest.mark.parametrize(("command", "printed"), CONSOLES, ids=[each[0] for each in CONSOLES])
def test_a_command_of_the_page_prints_what_the_page_says(
    command: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "small.yaml").write_text(EXAMPLE[0])
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = printed.splitlines()
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        start, cut, _ = wanted.partition("…")
        assert line.startswith(start) if cut else line == wanted
