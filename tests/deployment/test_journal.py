"""If the disk takes only half a line, the journal keeps the earlier lines, and the next line follows them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deployment.errors import JournalError
from deployment.journal import FAILED, INTERRUPTED, VERIFIED, Journal


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Limit the size of files of this process. A larger write is cut at the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_that_does_not_fit_leaves_no_half_of_itself(tmp_path: Path) -> None:
    entry = {"event": "ended", "stage": "driver", "action": "install", "result": FAILED}
    journal = Journal(tmp_path)
    journal.write(**entry)
    whole = journal.path.read_bytes()
    for more in (0, 1, len(whole) // 2, len(whole) - 1):
        with (
            file_size_limit(len(whole) + more),
            pytest.raises(JournalError, match="make it writable and free some space"),
        ):
            journal.write(**entry)
        assert journal.path.read_bytes() == whole
    journal.write(**entry)
    read = Journal(tmp_path)
    assert (len(read.entries), read.torn) == (2, "")


STARTED = '{"event": "started", "at": "2026-11-25T00:00:00Z", "action": "install", "stage": "driver"}'
ENDED = STARTED.replace("started", "ended").replace("}", ', "result": "verified"}')


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "\x00\x00\x00\x00",
        "[]",
        "{}",
        '{"event": 1}',
        '{"event": "run"}',
        '{"event": "run", "run": "r", "action": ["upgrade"]}',
        '{"event": "run", "run": "r", "action": "install", "options": ["--from"]}',
        '{"event": "run", "run": "r", "action": "install", "options": {"extra": 1}}',
        '{"event": "run", "run": "r", "action": "install", "options": {"bundle": {}}}',
        '{"event": "started", "stage": "driver"}',
        '{"event": "started", "at": "", "action": "install", "stage": []}',
        '{"event": "ended", "stage": "driver"}',
        ENDED.replace('"verified"', '"verified", "inputs": "all"'),
        ENDED.replace('"verified"', '"verified", "files": ["etcd.db"]'),
        ENDED.replace('"verified"', '"verified", "left": "dgx01"'),
        ENDED.replace('"verified"', '"verified", "versions": {"driver": 580}'),
        '{"event": "finished"}',
        '{"event": "ended", "stage": ' + "[" * 100_000,
        '{"event": "finished", "run": ' + "9" * 5_000 + "}",
    ],
    ids=range(20),
)
def test_a_line_that_is_none_of_a_journal_ends_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{STARTED}\n{ENDED}\n{line}\n{STARTED}\n")
    journal = Journal(tmp_path)
    assert f"{path}:3: the rest of the journal cannot be read" in journal.torn
    assert journal.last_records()["driver"].result == VERIFIED
    assert (journal.unfinished(), journal.intact_files("driver")) == (None, {})
    with journal.exclusive("install"):
        pass
    assert path.read_text() == f"{STARTED}\n{ENDED}\n"
    assert Journal(tmp_path).torn == ""


def test_lines_of_a_newer_muster_are_skipped(tmp_path: Path) -> None:
    newer = '{"event": "paused", "stage": "driver", "until": 7}'
    (tmp_path / "journal.jsonl").write_text(f"{STARTED}\n{newer}\n{ENDED}\n")
    journal = Journal(tmp_path)
    assert journal.torn == ""
    assert journal.last_records()["driver"].result == VERIFIED


def test_lines_that_were_interleaved_by_hand_still_have_their_order(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(f"\n\n{ENDED}\n\n{STARTED}")
    assert Journal(tmp_path).last_records()["driver"].result == INTERRUPTED
