from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.message import Progress, say_error

if TYPE_CHECKING:
    import pytest


def test_progress_goes_to_standard_error_until_the_last_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(3, "jobs deleted", every_seconds=0)
    for _ in range(3):
        progress.one_more()
    out, err = capsys.readouterr()
    assert (out, err) == ("", "1 of 3 jobs deleted …\n2 of 3 jobs deleted …\n")


def test_what_goes_fast_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(1000, "jobs deleted", every_seconds=3600)
    for _ in range(1000):
        progress.one_more()
    assert capsys.readouterr().err == ""


def test_an_error_is_one_printable_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("no job\n'a\tb\x1b[31m'")
    assert capsys.readouterr().err == "Error: no job 'a b\\x1b[31m'\n"
