"""A command's input and output: the judge gets all of it, and the record gets a bounded part."""

import asyncio
from pathlib import Path

from validation.targets.process import for_the_record, run_command


def test_all_that_a_command_printed_is_kept_for_the_judge(tmp_path: Path) -> None:
    whole = asyncio.run(run_command("muster operator-yaml --cluster lab", tmp_path / "none", started_ms=0))
    assert (whole.exit_code, len(whole.stdout) > 20_000) == (0, True), whole.stderr
    assert not whole.stdout.endswith("(cut)")
    assert for_the_record(whole).stdout == whole.stdout[:20_000] + "\n… (cut)"


def test_text_after_three_signs_is_typed_in(tmp_path: Path) -> None:
    line = "muster project create --help <<< 'cat /etc/hostname'"
    done = asyncio.run(run_command(line, tmp_path / "none", started_ms=0))
    assert (done.line, done.exit_code) == (line, 0)
    assert done.stdout.startswith("Usage: muster project create"), "the words behind are no arguments"
