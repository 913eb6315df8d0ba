"""Neither of two verifiers accepts a doctored record in silence, and both accept every honest redaction."""

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.validation.report.conftest import SOURCE
from tests.validation.report.doctored import KEYLESS, add_a_signature, doctored
from tests.validation.report.honest_records import OTHERS, RUNS, honest
from tests.validation.report.log_changes import CHANGES
from validation.errors import ReportError
from validation.report import log
from validation.report.statement import unchecked
from validation.report.verify import verify
from validation.report_command import report

BATCH = 100


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Return records of five runs with a redaction of each, and the public key that belongs to all signatures."""
    return honest(tmp_path_factory.mktemp("signed"), RUNS[5:])


def refused_by_muster(directory: Path, key: Path | None) -> list[str]:
    """Return the problems of a record, and the signatures that `verify` calls not checked. Without a key, a record
    that could not be compared is refused too, by exit code 4.
    """
    try:
        result = verify(directory, *([key] if key is not None else []))
        unknown = unchecked(directory, key) if key is not None else []
    except ReportError as error:
        return [str(error)]
    return result.problems or unknown or ([] if key is not None or result.is_compared else list(result.notes))


def accepted_by_the_second(
    program: Path, directories: Sequence[Path], key: Path | None = None, word: str = "accepted"
) -> list[str]:
    keys: list[str | Path] = ["-key", key] if key is not None else []
    done = subprocess.run(
        [program, *keys, *directories], capture_output=True, text=True, check=False, timeout=60
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(directories), done.stderr
    return [line for line in lines if line.endswith(f": {word}")]


def count_accepted(
    records: tuple[list[Path], Path], program: Path, out: Path, number: int, seed: int
) -> list[str]:
    """Return the doctored records, of this number, that either verifier accepted."""
    accepted, batch = [], []
    for one in doctored(records[0], out, number, seed):
        if not refused_by_muster(one.directory, None if one.seal == KEYLESS else records[1]):
            accepted.append(f"muster: {one}")
        batch.append(one)
        if len(batch) == BATCH:
            accepted += accepted_by_the_second(program, [one.directory for one in batch], records[1])
            for old in batch:
                shutil.rmtree(old.directory)
            batch = []
    return accepted + (
        accepted_by_the_second(program, [one.directory for one in batch], records[1]) if batch else []
    )


def test_the_second_verifier_is_one_short_file_of_its_own() -> None:
    text = SOURCE.read_text()
    assert len(text.splitlines()) <= 500
    assert max(len(line) for path in SOURCE.parent.iterdir() for line in path.read_text().splitlines()) < 270
    imports = text.partition("import (")[2].partition(")")[0].split()
    assert not [name for name in imports if "." in name]


def test_honest_records_and_redactions_are_accepted_by_both(
    signed: tuple[list[Path], Path], second_verifier: Path
) -> None:
    records, key = signed
    assert [refused_by_muster(path, key) for path in records] == [[]] * len(records)
    assert len(accepted_by_the_second(second_verifier, records, key)) == len(records)


def test_a_redaction_has_no_name_of_a_project_of_others(signed: tuple[list[Path], Path]) -> None:
    original, redaction = signed[0][:2]
    assert OTHERS.encode() in (original / log.NAME).read_bytes()
    assert OTHERS.encode() not in (redaction / log.NAME).read_bytes()


def test_no_doctored_record_is_accepted(
    signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    assert count_accepted(signed, second_verifier, tmp_path, 50, seed=44) == []


@pytest.mark.rare
def test_of_ten_thousand_doctored_records_none_is_accepted(second_verifier: Path, tmp_path: Path) -> None:
    records, key = honest(tmp_path / "honest", RUNS)
    assert len(records) == 20
    assert [refused_by_muster(path, key) for path in records] == [[]] * len(records)
    assert len(accepted_by_the_second(second_verifier, records, key)) == len(records)
    assert count_accepted((records, key), second_verifier, tmp_path, 10_000, seed=1) == []


@pytest.mark.rare  # 450 records
def test_each_kind_of_change_is_made(signed: tuple[list[Path], Path], tmp_path: Path) -> None:
    made = {one.change for one in doctored(signed[0], tmp_path, 450, seed=3)}
    assert {change.__name__ for change in CHANGES} <= made


def test_a_signature_of_no_key_is_named_by_both(
    signed: tuple[list[Path], Path], second_verifier: Path, tmp_path: Path
) -> None:
    records, key = signed
    made = Path(shutil.copytree(records[0], tmp_path / "made"))
    add_a_signature(made, records, random.Random(1))  # noqa: S311 - a made-up signature
    keyid = unchecked(made, key)
    assert len(keyid) == 1
    shown = CliRunner().invoke(report, ["verify", str(made), "--key", str(key)])
    assert (shown.exit_code, "NOT CHECKED" in shown.output, keyid[0] in shown.output) == (0, True, True)
    done = subprocess.run([second_verifier, "-key", key, made], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(f": accepted; NOT CHECKED: the signature of {keyid[0]}")
    private = key.with_suffix(".key")
    again = CliRunner().invoke(report, ["sign", str(made), "--key", str(private)])
    assert f"beside it, NOT CHECKED: the signature of {keyid[0]}" in again.output
