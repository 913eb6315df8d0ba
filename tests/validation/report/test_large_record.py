"""Records and pages of runs with very many steps and events stay small, and are rendered soon."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.validation.report.large_run import write_log
from validation.judge.events import Event, PodSeen, ProjectSet
from validation.report import log, record
from validation.report.assemble import assemble
from validation.report.record import Report
from validation.report.series import MAX_POINTS, points
from validation.report.write import write
from validation.report_command import report

MAX_PAGE_BYTES = 5_000_000
MAX_RECORD_BYTES = 25_000_000
"""Maximum size of a record of 10,000 checks, each with its expectation and its evidence."""


def judged(directory: Path, *, steps: int, changes: int) -> Report:
    write_log(directory, steps=steps, changes=changes)
    judged_run = assemble(log.read_log(directory))
    write(judged_run, directory)
    return judged_run


def test_the_record_does_not_grow_with_the_events(tmp_path: Path) -> None:
    few = judged(tmp_path / "few", steps=30, changes=4)
    many = judged(tmp_path / "many", steps=30, changes=24)
    assert few.verdict == many.verdict == "PASS"
    assert many.volatile.events.events > 5 * few.volatile.events.events
    sizes = [(tmp_path / name / "report.json").stat().st_size for name in ("few", "many")]
    assert sizes[1] < 1.2 * sizes[0]


def test_a_long_series_keeps_the_least_the_most_and_the_last_of_every_part() -> None:
    events: list[Event] = [ProjectSet(0, "p", 8000)]
    for number in range(10_000):
        change = "deleted" if number % 2 else "added"
        uid = f"u{number // 2}"
        events.append(
            PodSeen(
                number, change, uid, "n", "p", "w", "p", "Running", node="n", devices=(0,), gpu_milli=1000
            )
        )
    series = points(events)
    assert 1000 <= len(series) <= MAX_POINTS
    assert series[-1].t_ms == 9999
    assert {point.allocated_milli["p"] for point in series} == {0, 1000}
    assert [point.t_ms for point in series] == sorted(point.t_ms for point in series)


@pytest.mark.rare
def test_ten_thousand_steps_of_a_million_events_are_rendered_in_twenty_seconds(tmp_path: Path) -> None:
    result = judged(tmp_path / "large", steps=10_000, changes=6)
    assert result.volatile.events.events > 970_000
    assert result.verdict == "PASS"
    assert (tmp_path / "large" / "report.json").stat().st_size < MAX_RECORD_BYTES
    begin = time.process_time()
    done = CliRunner().invoke(report, ["render", str(tmp_path / "large"), "--out", str(tmp_path / "pages")])
    assert done.exit_code == 0, done.output
    assert time.process_time() - begin < 20
    assert (tmp_path / "pages" / "report.html").stat().st_size < MAX_PAGE_BYTES
    assert len(record.read(tmp_path / "large").volatile.series) <= MAX_POINTS
