from __future__ import annotations

from pathlib import Path

from orchestrator.cli.main import COMMANDS, EXIT_CODES
from orchestrator.cli.reference import reference

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_reference_has_the_help_of_the_commands() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), (
        "docs/reference/cli.md is not current: run 'make docs'"
    )


def test_every_command_and_every_exit_code_is_in_the_reference() -> None:
    text = reference()
    assert [name for name in COMMANDS if f"\n## muster {name}\n" not in text] == []
    assert [code for code in EXIT_CODES if f"\n| {code} | " not in text] == []
