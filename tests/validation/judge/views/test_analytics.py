"""The figures over time on the pages, compared with the events: each difference is named, and two judges agree."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.validation.judge.views.test_lists import pod
from tests.validation.second_judge import after
from tests.validation.second_judge_pages import analytics_is
from tests.validation.shown import Rows, shown_analytics
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import AnswerSeen, Event, NodeSeen, ProjectSet
from validation.judge.evidence import Evidence
from validation.judge.state import fold
from validation.judge.timeline import Timeline
from validation.judge.views.lists import ANALYTICS, ViewResult, judge_view, only_judged

READ_MS = 150_000
WORLD: list[Event] = [
    NodeSeen(0, "n1", 8),
    ProjectSet(1_000, "team-a", 4000),
    ProjectSet(1_000, "team-b", 2000),
    pod("train-0", t_ms=20_000, gpu_milli=4000),
    pod("late-0", "team-b", t_ms=90_000, gpu_milli=2000),
    pod("else-0", "team-c", t_ms=91_000, gpu_milli=1000),
]


def shown() -> Rows:
    return shown_analytics(WORLD, fold(WORLD), READ_MS)


def judged(rows: Rows) -> ViewResult:
    """Return our judgement; the second judge must agree."""
    answer = AnswerSeen(READ_MS, ANALYTICS, "", 0, json.dumps(rows))
    events = [*WORLD, answer]
    window = Window(0, len(WORLD), len(events), READ_MS, READ_MS)
    result = judge_view(ANALYTICS, Circumstances(), Timeline(events), window, least=Evidence(1, 8, 1, 1))
    plain = [msgspec.to_builtins(event) for event in events]
    theirs = analytics_is(plain, len(WORLD), after(plain[:-1]), rows)
    assert theirs == (result.judgement.verdict == "PASS"), result.differences
    return result


def point(project: str, at: int, value: Any) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        key = ("point", project, at)
        return [
            {**row, "GPUs ALLOCATED": value} if (row["of"], row.get("project"), row["at"]) == key else row
            for row in rows
            if "at" in row
        ] + [row for row in rows if "at" not in row]

    return change


def without(**fields: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if not fields.items() <= row.items()]


def changed(of: str, project: str, **fields: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [
        {**row, **fields} if (row["of"], row.get("project")) == (of, project) else row for row in rows
    ]


def test_honest_files_pass() -> None:
    rows = shown()
    assert [row["GPUs ALLOCATED"] for row in rows if row.get("project") == "team-a" and "at" in row] == [
        "2.71186", "4", "4",
    ]  # fmt: skip
    assert judged(rows).differences == ()


def test_a_page_that_is_a_little_late_passes() -> None:
    assert judged(point("team-a", 0, "2.1")(shown())).differences == ()


@pytest.mark.parametrize(
    ("lie", "difference"),
    [
        (point("team-a", 60, "3.9"), 'team-a: GPUs ALLOCATED is "3.9" for 60 s, not 4'),
        (point("team-a", 0, "1.5"), 'team-a: GPUs ALLOCATED is "1.5" for 59 s, not 2.712'),
        (point("team-a", 0, "4.5"), 'team-a: GPUs ALLOCATED is "4.5" for 59 s, not 2.712'),
        (point("team-b", 60, "2"), 'team-b: GPUs ALLOCATED is "2" for 60 s, not 1'),
        (point("team-b", 120, "0"), 'team-b: GPUs ALLOCATED is "0" for 30 s, not 2'),
        (point("team-b", 120, None), "team-b: GPUs ALLOCATED is"),
        (without(of="point", project="team-b"), "team-b: the GPUs that it held over time are not shown"),
        (changed("point", "team-b", at="x"), 'team-b: a point is at "x"'),
        (without(of="summary", project="team-a"), "project team-a is missing"),
        (changed("summary", "team-a", **{"GPUs NOW": "3"}), 'team-a: GPUs NOW is "3", not 4'),
        (changed("summary", "team-b", QUOTA="4"), 'team-b: QUOTA is "4", not 2'),
        (without(of="read"), "it is not said when the page was read"),
    ],
)
def test_wrong_values_are_named(lie: Callable[[Rows], Rows], difference: str) -> None:
    result = judged(lie(shown()))
    assert result.judgement.verdict == "FAIL"
    assert any(line.startswith(difference) for line in result.differences), result.differences


def test_no_more_is_passed_on_than_is_judged() -> None:
    rows = [{**row, "user": "ada"} for row in shown()] + [{"of": "point", "at": 0, "project": "team-c"}]
    answer = only_judged(AnswerSeen(READ_MS, ANALYTICS, "", 0, json.dumps(rows)), {"team-a", "team-b"})
    assert "ada" not in answer.output
    assert "team-c" not in answer.output
    assert judged(json.loads(answer.output)).differences == ()
