"""GPU hours of months: exact sums in the history's file, and `muster report usage`."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from musterweb import usage_store
from musterweb.errors import HistoryAway
from musterweb.history_model import OTHERS
from musterweb.history_store import Sample, Store
from musterweb.recorder import RecordedHistory
from musterweb.sights import Sights
from musterweb.usage_store import Held, Holder, UsageSample, read_usage
from orchestrator.cluster.kubeconfig import load_server
from tests.cluster.waiting import DEADLINE_SECONDS, ManualClock
from tests.musterweb.conftest import fill
from tests.musterweb.people import Someone
from tests.musterweb.running import Browser, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer
    from tests.musterweb.people import People

    Muster = Callable[..., Outcome]

END_OF_OCTOBER = 1_793_491_200 - 60
"""2026-10-31T23:59:00Z, one minute before November."""
HOUR = 3600 * 1000
NOTHING = Sample(0, 0, 0, None, None)
ANN, BOB, UNKNOWN = Holder("a", "ann", "H100"), Holder("b", "bob", "A100"), Holder("a", "", "")


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.now = END_OF_OCTOBER
    return clock


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    store = Store(tmp_path / "history.db", clock=clock)
    await store.start()
    yield store
    await store.close()


async def add(store: Store, clock: ManualClock, sample: UsageSample, *, seconds: int, times: int = 1) -> None:
    for _ in range(times):
        clock.now += seconds
        await store.add(NOTHING, {}, sample)


async def fill_two_months(store: Store, clock: ManualClock) -> None:
    """30 s of October and 2 h of November: ann holds 8 GPUs, half of them measured; bob holds half a GPU."""
    held = {ANN: Held(8000, 4000, 4000 * 75, 1000), BOB: Held(500, 500, 0, 500), UNKNOWN: Held(1000)}
    sample = UsageSample(held, {"a": 3000})
    await store.add(NOTHING, {}, sample)
    await add(store, clock, sample, seconds=30)
    await add(store, clock, sample, seconds=60, times=120)


async def test_gpu_time_is_an_exact_sum_by_month(store: Store, clock: ManualClock, tmp_path: Path) -> None:
    await fill_two_months(store, clock)
    record = read_usage(tmp_path / "history.db")
    found = {(row.month, row.holder): row.gpu_milli_seconds for row in record.rows}
    assert found[("2026-10", ANN)] == 8000 * 30
    assert found[("2026-11", ANN)] == 8000 * 7200
    assert found[("2026-11", BOB)] == 500 * 7200
    assert record.borrowed == {("2026-10", "a"): 3000 * 30, ("2026-11", "a"): 3000 * 7200}
    assert record.recorded_seconds == {"2026-10": 30, "2026-11": 7200}


async def test_a_gap_or_an_earlier_time_is_not_recorded(
    store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    sample = UsageSample({ANN: Held(1000)})
    await store.add(NOTHING, {}, sample)
    for seconds in (usage_store.MAX_GAP_SECONDS + 1, -30, 0, usage_store.MAX_GAP_SECONDS):
        await add(store, clock, sample, seconds=seconds)
    record = read_usage(tmp_path / "history.db")
    assert record.recorded_seconds == {"2026-11": usage_store.MAX_GAP_SECONDS}
    assert [row.gpu_milli_seconds for row in record.rows] == [1000 * usage_store.MAX_GAP_SECONDS]


async def test_two_writers_count_no_second_twice(store: Store, clock: ManualClock, tmp_path: Path) -> None:
    """A second process, such as the next one after a restart, continues at the time where the first one stopped."""
    other = Store(tmp_path / "history.db", clock=clock)
    await other.start()
    sample = UsageSample({ANN: Held(1000)})
    await store.add(NOTHING, {}, sample)
    for writer in (store, other, store, other):
        await add(writer, clock, sample, seconds=30)
    await other.close()
    record = read_usage(tmp_path / "history.db")
    assert [row.gpu_milli_seconds for row in record.rows] == [1000 * 30, 1000 * 90]


async def test_too_many_holders_count_together_and_old_months_go(
    store: Store, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_store, "MAX_MONTH_ROWS", 2)
    holders = [Holder("a", f"user-{number}", "") for number in range(4)]
    await store.add(NOTHING, {}, UsageSample())
    await add(store, clock, UsageSample({holders[3]: Held(1)}), seconds=1)
    await add(store, clock, UsageSample(dict.fromkeys(holders, Held(1, 1, 1, 1))), seconds=1)
    rows = {row.holder: row.gpu_milli_seconds for row in read_usage(tmp_path / "history.db").rows}
    assert rows == {holders[3]: 2, holders[0]: 1, Holder(OTHERS, OTHERS, OTHERS): 2}
    await add(store, clock, UsageSample(), seconds=usage_store.RETENTION_SECONDS + 40 * 86400)
    assert read_usage(tmp_path / "history.db").rows == ()


async def test_a_file_of_the_version_before_gets_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = Store(path)
    await store.start()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        for name in ("usage", "usage_borrowed", "usage_recorded", "usage_newest"):
            connection.execute(f"DROP TABLE {name}")
    with pytest.raises(HistoryAway, match="no such table"):
        read_usage(path)
    store = Store(path)
    await store.start()
    await store.close()
    assert read_usage(path).rows == ()


@pytest.fixture
async def written(store: Store, clock: ManualClock, tmp_path: Path) -> Path:
    await fill_two_months(store, clock)
    return tmp_path / "history.db"


def rows_of(outcome: Outcome) -> list[list[str]]:
    assert outcome.code == 0, outcome.err
    return list(csv.reader(io.StringIO(outcome.out)))


NOT_KNOWN = "not known"
GROUPED: list[tuple[str, list[list[str]]]] = [
    ("month,project", [
        ["2026-11", "a", "18.00", "44%", "6.00", "2.00", "6.00", NOT_KNOWN],
        ["2026-11", "b", "1.00", "100%", "0.00", "1.00", "0.00", NOT_KNOWN],
    ]),
    ("user", [
        ["ann", "16.00", "50%", "6.00", "2.00", NOT_KNOWN, NOT_KNOWN],
        ["bob", "1.00", "100%", "0.00", "1.00", NOT_KNOWN, NOT_KNOWN],
        [NOT_KNOWN, "2.00", "0%", NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN],
    ]),
    ("model,project", [
        ["A100", "b", "1.00", "100%", "0.00", "1.00", NOT_KNOWN, NOT_KNOWN],
        ["H100", "a", "16.00", "50%", "6.00", "2.00", NOT_KNOWN, NOT_KNOWN],
        [NOT_KNOWN, "a", "2.00", "0%", NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN],
    ]),
    ("month", [["2026-11", "19.00", "47%", "6.00", "3.00", "6.00", NOT_KNOWN]]),
]  # fmt: skip


@pytest.mark.parametrize(("by", "rows"), GROUPED, ids=lambda each: each if isinstance(each, str) else "")
async def test_usage_is_summed_by_the_named_columns(
    by: str, rows: list[list[str]], written: Path, muster: Muster
) -> None:
    """A value without a measurement is not known, and never 0."""
    outcome = muster(
        "report", "usage", "--history", str(written), "--by", by, "--month", "2026-11", "-o", "csv"
    )
    found = rows_of(outcome)
    assert found[0][: len(by.split(","))] == by.upper().split(",")
    assert found[1:] == rows
    assert outcome.err == "2026-11: 2.0 of 720 hours are recorded\n"


async def test_json_has_exact_integers_and_null(written: Path, muster: Muster) -> None:
    outcome = muster(
        "report", "usage", "--history", str(written), "--by", "user", "--price", "2.50", "-o", "json"
    )
    document: Any = json.loads(outcome.out)
    assert document["months"]["2026-11"] == {"recordedSeconds": 7200, "seconds": 2592000}
    ann, bob, unknown = document["usage"]
    assert ann == {
        "user": "ann",
        "gpuMilliSeconds": 8000 * 7230,
        "measuredGpuMilliSeconds": 4000 * 7230,
        "usedGpuMilliSeconds": 3000 * 7230,
        "idleGpuMilliSeconds": 1000 * 7230,
        "borrowedGpuMilliSeconds": None,
        "lostByPreemptionGpuMilliSeconds": None,
        "cost": "40.17",
    }
    assert (bob["usedGpuMilliSeconds"], unknown["usedGpuMilliSeconds"], unknown["user"]) == (0, None, None)


async def test_a_table_has_the_cost_and_says_how_much_is_recorded(written: Path, muster: Muster) -> None:
    outcome = muster("report", "usage", "--history", str(written), "--price", "3")
    assert outcome.lines[0].split()[-1] == "COST"
    assert outcome.lines[-1].split() == [
        "2026-11",
        "b",
        "1.00",
        "100%",
        "0.00",
        "1.00",
        "0.00",
        "not",
        "known",
        "3.00",
    ]
    assert outcome.err.splitlines() == [
        "2026-10: 0.0 of 744 hours are recorded", "2026-11: 2.0 of 720 hours are recorded",
    ]  # fmt: skip
    empty = muster("report", "usage", "--history", str(written), "--month", "2026-01")
    assert (empty.code, empty.err) == (0, "Nothing is recorded for this time.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "team"), "--by team is not possible"), (("--by", "user,user"), "--by user,user is not possible"),
        (("--month", "2026-13"), "is no month"), (("--price", "-1"), "is no price"),
        (("--price", "NaN"), "is no price"),
        (("--price", "1e99"), "is no price"), (("-o", "yaml"), "yaml"),
    ],
)  # fmt: skip
async def test_impossible_words_are_refused(
    words: tuple[str, ...], message: str, written: Path, muster: Muster
) -> None:
    outcome = muster("report", "usage", "--history", str(written), *words)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert message in outcome.err


def test_another_file_is_refused(tmp_path: Path, muster: Muster) -> None:
    (tmp_path / "text").write_text("no database")
    outcome = muster("report", "usage", "--history", str(tmp_path / "text"))
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "give the file of muster web --history" in outcome.err


def test_the_recorder_writes_the_holders_of_a_cluster(
    server: MemoryApiServer, people: People, kubeconfig: Path, tmp_path: Path
) -> None:
    """ann has 2 GPUs, of which the agent reports one."""
    fill(server)
    people.by_token["robot"] = Someone("recorder")
    (tmp_path / "token").write_text("robot")
    path, access = tmp_path / "history.db", load_server(kubeconfig)
    history = RecordedHistory(Store(path), access, tmp_path / "token", Sights(), record_seconds=0.2)
    with serving(access, history=history) as port:
        browser = Browser(port)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (path.exists() and (record := _readable(path)) and record.rows):
            assert time.monotonic() < deadline
            browser.get("/sign-in")
    rows = {row.holder: row for row in read_usage(path).rows}
    assert {(holder.project, holder.user) for holder in rows} == {
        ("team-a", "ann"), ("team-a", "<script>alert(1)</script>"), ("team-b", "bob"),
    }  # fmt: skip
    assert {holder.model for holder in rows} == {"Tesla-V100-SXM2-32GB"}
    ann = rows[Holder("team-a", "ann", "Tesla-V100-SXM2-32GB")]
    assert ann.gpu_milli_seconds == 2 * ann.measured_milli_seconds > 0
    assert ann.used_milli_percent_seconds == 37 * ann.measured_milli_seconds


def _readable(path: Path) -> usage_store.UsageRecord | None:
    try:
        return read_usage(path)
    except HistoryAway:
        return None
