"""The stored history: the read values equal the written ones, and neither a year nor a flood
makes the file too large.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from musterweb.errors import HistoryAway
from musterweb.history_model import OTHERS, Span
from musterweb.history_store import (
    DAY_SECONDS,
    MAX_BYTES,
    MAX_PROJECTS,
    MAX_ROWS,
    SLOTS,
    TIERS,
    Sample,
    Store,
    bounded,
)
from tests.cluster.waiting import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOW = 1_700_000_000 // 21600 * 21600
CLUSTER = Sample(6000, 16000, 2000, 1000, 370)
GIGABYTE = 10**9
EVERY_FIGURE = Sample(2**20, 2**20, 2**20, 2**20, 999, 2**20, 2**12, 2**22)
"""Figures of a large cluster, which take the maximum number of bytes in a row."""


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.now = NOW
    return clock


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = Store(tmp_path / "history.db", clock=clock)
    await store.start()
    yield store
    await store.close()


def sample(gpu_milli: int, **changes: int | None) -> Sample:
    figures: dict[str, int | None] = {
        "quota_milli": 4000, "pending_milli": 0, "idle_milli": 0, "used_permille": 500, **changes,
    }  # fmt: skip
    return Sample(gpu_milli, **figures)  # type: ignore[arg-type]


async def test_written_figures_come_back_as_means_and_sums(store: Store, clock: ManualClock) -> None:
    for minute in range(20):
        busy = sample(
            2000 if minute < 10 else 4000,
            used_permille=200 if minute < 10 else 400,
            started=1,
            wait_seconds=30,
        )
        await store.add(CLUSTER, {"team-a": busy, "team-b": sample(0, used_permille=None, idle_milli=None)})
        clock.now += 60
    fine = await store.read(Span.last(1, clock.now), None)
    line = fine.projects["team-a"]
    assert [value for value in line.allocated if value is not None] == [2] * 10 + [4] * 10
    assert fine.projects["team-b"].utilization == [None] * len(fine.span.times)
    assert fine.cluster is not None
    assert {value for value in fine.cluster.total if value is not None} == {16}
    coarse = await store.read(Span.last(168, clock.now), None)
    line = coarse.projects["team-a"]
    assert [value for value in line.allocated if value is not None] == [pytest.approx(3)]
    assert [value for value in line.utilization if value is not None] == [pytest.approx(0.3)]
    assert [value for value in line.started if value is not None] == [20]
    assert [value for value in line.wait_seconds if value is not None] == [600]
    assert fine.problems == coarse.problems == ()


@pytest.mark.parametrize("hours", [1, 6, 24, 168, 720, 8760])
async def test_every_period_is_answered_from_a_tier_that_reaches_so_far(
    store: Store, clock: ManualClock, hours: int
) -> None:
    start = clock.now
    for part in range(1, 10):
        clock.now = start + hours * 3600 * part / 10
        await store.add(CLUSTER, {"team-a": sample(1000 * part)})
    clock.now = start + hours * 3600
    record = await store.read(Span.last(hours, clock.now), None)
    held = [value for value in record.projects["team-a"].allocated if value is not None]
    assert held == list(range(1, 10))


async def test_a_person_gets_the_projects_that_were_asked_for_and_nothing_of_the_cluster(
    store: Store,
) -> None:
    many = {f"p{number:04d}": sample(1000) for number in range(MAX_PROJECTS + 5)}
    await store.add(CLUSTER, {**many, "team-b": sample(9000)})
    record = await store.read(
        Span.last(1, NOW + 60), frozenset({"p0001", OTHERS, "", "nobody", "p0001' OR 1=1"})
    )
    assert set(record.projects) == {"p0001"}
    assert record.cluster is None


async def test_a_history_without_a_writer_is_not_called_current(store: Store, clock: ManualClock) -> None:
    span = Span.last(24, NOW + 60)
    assert (await store.read(span, None)).problems == (
        "Nothing was recorded yet: come back in some minutes.",
    )
    await store.add(CLUSTER, {"team-a": sample(1000)})
    clock.now += 7 * 60
    (problem,) = (await store.read(span, None)).problems
    assert "7 minutes old: nothing here is current" in problem
    store.problem = "the token is not accepted"
    assert (
        "Nothing is recorded at present: the token is not accepted" in (await store.read(span, None)).problems
    )


async def test_slots_and_names_go_when_their_time_is_over(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    await store.add(CLUSTER, {"gone": sample(1000), "stays": sample(1000)})
    clock.now += 3 * DAY_SECONDS
    await store.add(CLUSTER, {"stays": sample(1000)})
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        tiers = [row[0] for row in file.execute("SELECT count(*) FROM points GROUP BY tier ORDER BY tier")]
        assert tiers == [2, 5, 5, 5]
    clock.now += 401 * DAY_SECONDS
    await store.add(CLUSTER, {"stays": sample(1000)})
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        assert sorted(row[0] for row in file.execute("SELECT name FROM names")) == ["", "stays"]
        assert file.execute("SELECT count(*) FROM points").fetchone() == (8,)


def test_a_year_has_so_many_slots_and_a_flood_of_projects_no_more_rows_of_each() -> None:
    assert TIERS[-1].retention_seconds >= 366 * DAY_SECONDS
    assert sum(tier.retention_seconds // tier.slot_seconds + 1 for tier in TIERS) == SLOTS == 8708
    flood = {f"p{number}": sample(number) for number in range(5 * MAX_PROJECTS)}
    samples = bounded(flood)
    assert len(samples) == MAX_PROJECTS + 1
    assert sum(each.gpu_milli for each in samples.values()) == sum(each.gpu_milli for each in flood.values())
    assert f"p{5 * MAX_PROJECTS - 1}" in samples, "those that hold the most are named"


async def test_a_year_of_a_thousand_projects_fits_in_a_gigabyte(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    """500 nodes have 4,000 GPUs, and the number of projects matters. The test measures the bytes of a row."""
    flood = {f"team-{number:04d}": EVERY_FIGURE for number in range(MAX_PROJECTS + 500)}
    for _ in range(8):
        await store.add(EVERY_FIGURE, flood)
        clock.now += 6 * 3600
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        (rows,) = file.execute("SELECT count(*) FROM points").fetchone()
    row_bytes = (tmp_path / "history.db").stat().st_size / rows
    assert rows == 8 * len(TIERS) * (MAX_PROJECTS + 2)
    assert MAX_ROWS * row_bytes < 0.6 * GIGABYTE, row_bytes


async def test_names_that_change_all_the_time_reach_the_bound_and_no_further(
    tmp_path: Path, clock: ManualClock
) -> None:
    bound = 1 << 20
    store = Store(tmp_path / "history.db", clock=clock, max_bytes=bound)
    await store.start()
    for number in range(25):
        await store.add(EVERY_FIGURE, {f"project-{number}-{other}": EVERY_FIGURE for other in range(200)})
        clock.now += 600
    clock.now -= 600
    assert bound // 2 < (tmp_path / "history.db").stat().st_size <= bound
    record = await store.read(Span.last(1, clock.now), None)
    assert "project-24-7" in record.projects, "the newest is there"
    assert record.problems == ()
    await store.close()
    assert MAX_BYTES < GIGABYTE


@pytest.mark.parametrize("content", [b"no database at all, but a text of some length" * 9, b""])
async def test_a_file_of_others_is_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    if content:
        with pytest.raises(HistoryAway):
            Store(path).check()
        assert path.read_bytes() == content
    else:
        Store(path).check()
        assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(HistoryAway, match="cannot be written"):
        Store(tmp_path / "missing" / "file").check()


async def test_a_history_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    Store(path).check()
    file = sqlite3.connect(path)
    file.execute("PRAGMA user_version = 99")
    file.close()
    with pytest.raises(HistoryAway, match="another version"):
        Store(path).check()
    assert path.stat().st_mode & 0o777 == 0o600
