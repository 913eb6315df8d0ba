"""Every command on a page exists with its options, and every output on a page is the present one."""

from pathlib import Path

import click
import pytest

from orchestrator.cli.main import muster
from tests.docs.pages import CONSOLE, PAGES, ROOT, commands
from tests.docs.write_outputs import with_outputs

LINES = sorted({line for page in PAGES for line in commands(page.read_text(encoding="utf-8"))})
WITH_OUTPUTS = [page for page in PAGES if CONSOLE.search(page.read_text(encoding="utf-8"))]


def test_the_pages_have_commands_and_outputs() -> None:
    assert len(LINES) > 150
    assert len(WITH_OUTPUTS) >= 5


@pytest.mark.parametrize("line", LINES)
def test_a_command_exists_with_its_options(line: str) -> None:
    words = [word.strip("'\"") for word in line.split()[1:]]
    command: click.Command = muster
    context = click.Context(muster, info_name="muster")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]!r}"
        command, context = found, click.Context(found, parent=context, info_name=words.pop(0))
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    given = [word.partition("=")[0] for word in words[: words.index("--") if "--" in words else None]]
    assert [word for word in given if word.startswith("--") and word not in {*options, "--help"}] == []


@pytest.mark.parametrize("page", WITH_OUTPUTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_an_output_on_a_page_is_the_present_one(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    text = page.read_text(encoding="utf-8")
    assert with_outputs(text) == text, "make docs"
