"""Tables of command lines are read as they are meant: `tests.cli_table.table`."""

from pathlib import Path

import pytest

from tests.cli_table.table import cells, load


def test_a_table_is_read_by_its_header_and_not_by_its_words() -> None:
    text = (
        "Showing jobs for project a\nNAME  STATUS   CREATED BY CLI  URL(S)\nx     Running  true            \n"
    )
    assert cells(text) == (
        ["NAME", "STATUS", "CREATED BY CLI", "URL(S)"],
        {"x": {"NAME": "x", "STATUS": "Running", "CREATED BY CLI": "true", "URL(S)": ""}},
    )


def test_a_step_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("- {scenario: s, steps: [{line: 'true', exti: 1}]}")
    with pytest.raises(ValueError, match="exti"):
        load(tmp_path / "t.yaml")
