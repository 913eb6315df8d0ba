"""The worked example of docs/simulate.md: every command in it prints what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from orchestrator.cli.main import main

TEXT = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
CONSOLES = re.findall(r"```console\n\$ muster ([^\n]*)\n(.*?)```", TEXT, re.DOTALL)


def test_the_page_has_one_file_and_some_commands() -> None:
    assert (len(EXAMPLE), len(CONSOLES)) == (1, 3)


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
