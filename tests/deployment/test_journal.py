"""The journal when the disk takes half a line: what was there stays whole, and the next line follows it."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deployment.errors import JournalError
from deployment.journal import FAILED, Journal


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond a size: a write beyond it comes only as far as that."""
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
