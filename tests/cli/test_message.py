from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml

from orchestrator.cli.message import Progress, say, say_error
from orchestrator.cli.output import document, fact_lines, table

if TYPE_CHECKING:
    import pytest


def test_progress_is_written_to_standard_error_until_the_last_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(3, "jobs deleted", every_seconds=0)
    for _ in range(3):
        progress.one_more()
    out, err = capsys.readouterr()
    assert (out, err) == ("", "1 of 3 jobs deleted …\n2 of 3 jobs deleted …\n")


def test_a_fast_operation_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(1000, "jobs deleted", every_seconds=3600)
    for _ in range(1000):
        progress.one_more()
    assert capsys.readouterr().err == ""


def test_an_error_is_one_printable_line_for_any_text_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("no job\n'a\tb\x1b[31m'")
    assert capsys.readouterr().err == "Error: no job 'a b\\x1b[31m'\n"


WINDOW_TITLE, EIGHT_BIT = "\x1b]0;pwned\x07", "\x9b31m"


def test_no_table_or_list_of_facts_has_a_character_that_a_terminal_obeys() -> None:
    rows = [(WINDOW_TITLE, f"a{EIGHT_BIT}b\u202ec"), ("good", "\x7f")]
    assert table(("NAME", "MESSAGE"), rows).splitlines()[1:] == [
        "\\x1b]0;pwned\\x07  a\\x9b31mb\\u202ec",
        "good              \\x7f",
    ]
    assert fact_lines({"NAME": WINDOW_TITLE}) == "NAME: \\x1b]0;pwned\\x07"


def test_no_document_has_one_and_programs_read_the_existing_ones() -> None:
    value = {"message": WINDOW_TITLE + EIGHT_BIT + "\x7f", "name": "größe"}
    for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        text = document(value, form)
        assert all(character.isprintable() or character == "\n" for character in text)
        assert load(text) == value
        assert "größe" in text


def test_lines_with_words_of_others_are_for_people_alone(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"first\nsecond {WINDOW_TITLE}\r")
    assert capsys.readouterr().out == "first\nsecond \\x1b]0;pwned\\x07\\r\n"
