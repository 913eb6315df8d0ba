"""The checks of containers: the shown log is the kubelet's log, and a shell is in the right container."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validation.judge.views.test_lists import pod
from tests.validation.second_judge import World
from tests.validation.second_judge_views import judge_container as judge_again
from validation.judge.api.containers import MAX_LINES, digests
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import AnswerSeen, Event, NodeSeen, ProjectSet, RequestAnswered
from validation.judge.evidence import NO_EVIDENCE
from validation.judge.timeline import Timeline
from validation.judge.views.lists import judge_view, only_judged, view_of

LOG, SHELL = "log/team-a/train", "shell/team-a/train"
WORLD: list[Event] = [
    NodeSeen(0, "n1", 8),
    ProjectSet(1, "team-a", 4000),
    pod("train-0"),
    pod("train-1", phase="Pending"),
    pod("other-0"),
]


def world_after(events: Iterable[Event]) -> World:
    """Return the second judge's state after these events."""
    world = World()
    for event in events:
        world.apply(msgspec.to_builtins(event))
    return world


def verdict(name: str, *during: Event) -> str:
    """Return the verdict; both judges must agree."""
    events = [*WORLD, *during]
    window = Window(0, len(WORLD), len(events), 8, 9)
    ours = judge_view(name, Circumstances(), Timeline(events), window, least=NO_EVIDENCE).judgement
    world = world_after(WORLD)
    if not any(isinstance(event, AnswerSeen) and event.exit_code for event in during):
        assert judge_again(name, world, [msgspec.to_builtins(event) for event in during]) == ours.verdict, (
            ours.reason
        )
    return ours.verdict


def kubelet(text: str, problem: str = "") -> RequestAnswered:
    return RequestAnswered(8, LOG, "GET", "/log", 0, digests(text, is_whole=False), problem=problem)


def printed(text: str, view: str = LOG, exit_code: int = 0) -> AnswerSeen:
    """Return a command's output as the run stores it: stripped, and of a log only the digests."""
    output = digests(text.strip(), is_whole=True) if view == LOG else text
    return AnswerSeen(8, view, view_of(view).line, exit_code, output)


@pytest.mark.parametrize(
    ("before", "text", "after", "expected"),
    [
        ("a\nb\n", "a\nb\n", "a\nb\n", "PASS"),
        ("a\n", "a\nb\n", "a\nb\nc\n", "PASS"),
        ("\n a\n", "a\nb\n", "\n a\nb\nc\n", "PASS"),
        ("a\nb", "a\nbc", "a\nbcd\n", "PASS"),
        ("a\n", "a\nb", "a\nbcd\ne\n", "PASS"),
        ("a\nb\n", "a\n", "a\nb\n", "FAIL"),
        ("a\nb\n", "", "a\nb\n", "FAIL"),
        ("a\nb\n", "a\nx\n", "a\nb\n", "FAIL"),
        ("a\n", "a\nx\ny\n", "a\nb\n", "FAIL"),
        ("a\n", "a\nb\nc\nd\n", "a\nb\n", "FAIL"),
        ("a\nb\n", "b\n", "a\nb\n", "FAIL"),
        ("", "a\n", "a\n", "INCONCLUSIVE"),
        ("a", "a\n", "a\n", "INCONCLUSIVE"),
    ],
)
def test_a_log_is_the_kubelet_s(before: str, text: str, after: str, expected: str) -> None:
    assert verdict(LOG, kubelet(before), printed(text), kubelet(after)) == expected


def test_a_log_without_a_second_reader_proves_nothing() -> None:
    assert verdict(LOG, printed("a\n"), kubelet("a\n")) == "INCONCLUSIVE"
    assert verdict(LOG, kubelet("a\n"), printed("a\n")) == "INCONCLUSIVE"
    assert verdict(LOG, kubelet("", "502 Bad Gateway"), printed("a\n"), kubelet("a\n")) == "ERROR"
    assert verdict(LOG, kubelet("a\n"), printed("a\n"), kubelet("", "502 Bad Gateway")) == "ERROR"
    assert verdict(LOG, kubelet("a\n"), printed("a\n", exit_code=1), kubelet("a\n")) == "FAIL"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train-0", "PASS"),
        ("train-0\n", "PASS"),
        ("train-1", "FAIL"),
        ("other-0", "FAIL"),
        ("train", "FAIL"),
        ("", "FAIL"),
        ("train-0 train-0", "FAIL"),
    ],
)
def test_a_shell_is_in_a_pod_of_the_job_that_runs(text: str, expected: str) -> None:
    assert verdict(SHELL, printed(text, SHELL)) == expected
    assert verdict(SHELL, only_judged(printed(text, SHELL), {"team-a"})) == expected


def test_of_a_log_digests_alone_are_kept() -> None:
    text = "epoch 1 of ada, token secret\n"
    assert "ada" not in digests(text, is_whole=True)
    assert only_judged(printed(text), {"team-a"}) == printed(text)
    assert "secret" not in only_judged(printed("secret token", SHELL), {"team-a"}).output


def test_of_a_long_log_the_beginning_is_compared() -> None:
    text = "".join(f"line {number}\n" for number in range(3 * MAX_LINES))
    assert len(digests(text, is_whole=True).split()) == MAX_LINES
    assert verdict(LOG, kubelet(text[: len(text) // 2]), printed(text), kubelet(text)) == "PASS"


TEXTS: st.SearchStrategy[Any] = st.text(alphabet="ab \n\r", max_size=12)


@given(TEXTS, TEXTS, TEXTS, st.booleans())
def test_two_judges_agree_on_any_log(before: str, text: str, after: str, grows: bool) -> None:
    if grows:
        text, after = before + text, before + text + after
    result = verdict(LOG, kubelet(before), printed(text), kubelet(after))
    if grows:
        assert result in {"PASS", "INCONCLUSIVE"}


WROTE, READS, AGAIN = "written/team-a/train", "read/team-a/other", "reused/team-a/other"
CLAIM = {"metadata": {"uid": "u1"}, "spec": {"volumeName": "v1"}}


def claim(view: str, content: Any = None, status: int = 200, problem: str = "") -> RequestAnswered:
    text = content if isinstance(content, str) else json.dumps(content or CLAIM)
    return RequestAnswered(8, view, "GET", "/claim", status, text, problem=problem)


def of_volume(
    view: str, text: str, *more: Event, claims: Any = None, writer: str = "train-0", node: str = "n2"
) -> str:
    """Return the verdict on a read of the volume after another job wrote; the events `more` happen in between."""
    earlier: list[Event] = [
        *WORLD,
        NodeSeen(1, "n2", 8),
        pod("other-0", node=node),
        printed(writer, WROTE),
        claim(WROTE),
        *more,
    ]
    during: list[Event] = [printed(text, view), claim(view, claims)]
    events = [*earlier, *during]
    window = Window(0, len(earlier), len(events), 8, 9)
    ours = judge_view(view, Circumstances(), Timeline(events), window, least=NO_EVIDENCE).judgement
    world = world_after(earlier)
    theirs = judge_again(view, world, *([msgspec.to_builtins(e) for e in part] for part in (during, earlier)))
    assert theirs == ours.verdict, ours.reason
    return ours.verdict


GONE = pod("train-0", change="deleted")


@pytest.mark.parametrize(
    ("view", "text", "more", "expected"),
    [
        (READS, "train-0\nother-0\n", [], "PASS"),
        (READS, "train-1\nother-0\n", [], "FAIL"),
        (READS, "other-0", [], "FAIL"),
        (READS, "train-0\ntrain-0", [], "FAIL"),
        (READS, "train-0\ntrain-0\nother-0", [], "FAIL"),
        (READS, "train-0\nother-0\n", [GONE], "FAIL"),
        (AGAIN, "train-0\nother-0\n", [GONE], "PASS"),
        (AGAIN, "train-0\nother-0\n", [], "FAIL"),
        (AGAIN, "other-0\n", [GONE], "FAIL"),
    ],
)
def test_written_content_is_read_where_and_when_it_must_be(
    view: str, text: str, more: list[Event], expected: str
) -> None:
    assert of_volume(view, text, *more) == expected


def test_a_job_on_the_node_of_the_one_that_wrote_proves_nothing() -> None:
    assert of_volume(READS, "train-0\nother-0\n", node="n1") == "FAIL"


def test_a_text_that_no_pod_of_the_writer_wrote_is_no_proof() -> None:
    assert of_volume(AGAIN, "ghost\nother-0\n", GONE, writer="ghost") == "FAIL"
    assert of_volume(READS, "other-0\nother-0\n", writer="other-0") == "FAIL"


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"metadata": []}', CLAIM | {"spec": {}}, CLAIM | {"metadata": {"uid": "u2"}}]
)
def test_another_claim_or_none_is_no_proof(content: Any) -> None:
    assert of_volume(AGAIN, "train-0\nother-0\n", GONE, claims=content) == "FAIL"


def test_without_a_writer_or_without_a_word_on_the_claim_nothing_is_proven() -> None:
    assert verdict(WROTE, printed("train-0", WROTE)) == "INCONCLUSIVE"
    assert verdict(WROTE, printed("train-0", WROTE), claim(WROTE)) == "PASS"
    assert verdict(WROTE, printed("train-1", WROTE), claim(WROTE)) == "FAIL"
    assert verdict(WROTE, printed("train-0", WROTE), claim(WROTE, status=404)) == "ERROR"
    assert verdict(WROTE, printed("train-0", WROTE), claim(WROTE, problem="lost")) == "ERROR"
    assert verdict(READS, printed("train-0\nother-0", READS), claim(READS)) == "INCONCLUSIVE"
