"""The sum over a period has each counted job once, in answers of a real Prometheus at several scrape intervals."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from musterweb.analytics import SUMMARY_HEADER, _Rows, _summary_row
from musterweb.history_model import Span
from musterweb.prometheus import PrometheusHistory
from tests.cli.prometheus_process import needs_prometheus, prometheus, until_answered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = needs_prometheus

NOW: Final = 1_700_006_400
INTERVALS: Final = (15, 30, 60)
HOURS: Final = (1, 6, 24, 168, 720)
WAIT_SECONDS: Final = 40
STARTS: Final = (
    *(NOW - 3300,) * 10,
    NOW - 3000 - 1,
    NOW - 3000,
    NOW - 3000 + 1,
    *(NOW - 2000 + 17 * number for number in range(20)),
    NOW - 90,
)
"""Times at which jobs start, all in the last hour: ten at the same moment, some beside the end of a step, one every 17
s, one 90 s ago.
"""


@dataclass(frozen=True)
class Process:
    """A process of the leading operator: it counts from `since` on, and is scraped until `until`, except during `away`.

    Its project exists since `project_since`. It had counted `before` jobs at its first scrape.
    """

    instance: str
    since: int
    until: int
    project_since: int = 0
    before: int = 0
    away: tuple[int, int] = (0, 0)

    def lines(self, project: str, starts: tuple[int, ...], interval: int) -> Iterator[str]:
        """Yield the samples that a Prometheus stores of the process, in the format of OpenMetrics."""
        for at in range(self.since - self.since % interval + 7, self.until, interval):
            if not self.since <= at < self.until or self.away[0] <= at < self.away[1]:
                continue
            mark = f'instance="{self.instance}-{interval}"'
            yield f"muster_operator_last_decision_timestamp_seconds{{{mark}}} {at} {at}"
            if at >= self.project_since:
                count = self.before + sum(self.since <= start <= at for start in starts)
                mark += f',project="{project}"'
                yield f"muster_project_wait_seconds_count{{{mark}}} {count} {at}"
                yield f"muster_project_wait_seconds_sum{{{mark}}} {count * WAIT_SECONDS} {at}"


RESTART: Final = NOW - 42 * 60
"""The end of a step of 60 s, and the middle of a step of 300 s."""
AFTER_RESTART: Final = (RESTART + 1,) * 5
DAY: Final = NOW - 26 * 3600
CASES: Final[dict[str, tuple[Process, ...]]] = {
    "steady": (Process("a", DAY, NOW, before=5000),),
    "restarted": (Process("b", DAY, RESTART, before=5000), Process("b", RESTART, NOW)),
    "handed-over": (Process("c", DAY, RESTART, before=5000), Process("d", RESTART, NOW)),
    "away-for-two-minutes": (Process("e", DAY, NOW, before=5000, away=(NOW - 2490, NOW - 2370)),),
    "away-for-half-an-hour": (Process("f", DAY, NOW, before=5000, away=(NOW - 6000, NOW - 4200)),),
    "first-seen-with-its-jobs": (Process("g", DAY, NOW, project_since=NOW - 3299),),
}


def starts_of(project: str) -> tuple[int, ...]:
    """Return when the project's jobs start. In `restarted` five start between the restart and the next scrape."""
    return (*STARTS, *AFTER_RESTART) if project.startswith("restarted") else STARTS


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Prometheus with the samples of all cases at all scrape intervals. Yield its address."""
    directory: Path = tmp_path_factory.mktemp("prometheus")
    lines = [
        line
        for case, processes in CASES.items()
        for interval in INTERVALS
        for process in processes
        for line in process.lines(f"{case}-{interval}", starts_of(case), interval)
    ]
    text = directory / "past.txt"
    text.write_text("\n".join([*lines, "# EOF", ""]))
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(directory / "data")]
    done = subprocess.run(blocks, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with prometheus(directory, {}) as address:
        yield address


@pytest.fixture
async def history(url: str) -> AsyncIterator[PrometheusHistory]:
    await until_answered(url, "vector(1)", "1")
    reader = PrometheusHistory(url, clock=lambda: NOW)
    await reader.start()
    yield reader
    await reader.close()


@pytest.mark.parametrize("hours", HOURS)
async def test_each_job_that_started_is_counted_once(history: PrometheusHistory, hours: int) -> None:
    span = Span.last(hours, NOW)
    record = await history.read(span, None)
    assert set(record.projects) == {f"{case}-{interval}" for case in CASES for interval in INTERVALS}
    started = SUMMARY_HEADER.index("JOBS STARTED")
    wait = SUMMARY_HEADER.index("WAIT MEAN")
    rows = {name: _summary_row(name, lines, span, "") for name, lines in record.projects.items()}
    beside = {name: int(row[started]) - len(starts_of(name)) for name, row in rows.items()}
    # An operator restarts in the middle of a step: the count of this step is Prometheus' estimate.
    extrapolated = {name for name in rows if name.startswith(("restarted", "handed-over")) and span.step > 60}
    assert {name: number for name, number in beside.items() if number and name not in extrapolated} == {}
    assert all(abs(beside[name]) <= 1 for name in extrapolated), beside
    assert {row[wait] for name, row in rows.items() if name not in extrapolated} == {f"{WAIT_SECONDS}s"}


async def test_the_points_of_the_file_are_those_that_were_counted_in_each_step(
    history: PrometheusHistory,
) -> None:
    span = Span.last(1, NOW)
    record = await history.read(span, frozenset({"steady-15"}))
    points = [float(row[7]) for row in _Rows(record)]
    expected = [
        sum(at - span.step < -(-(start - 7) // 15) * 15 + 7 <= at for start in STARTS) for at in span.times
    ]
    assert points == expected
    assert sum(points) == len(STARTS)
