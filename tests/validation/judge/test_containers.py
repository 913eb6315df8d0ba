"""What the command line shows of a container: its log as the kubelet has it, and a shell that is truly in it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validation.judge.test_views import pod
from tests.validation.second_judge import World
from tests.validation.second_judge_views import judge_container as judge_again
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.containers import MAX_LINES, digests
from validation.judge.events import AnswerSeen, Event, NodeSeen, ProjectSet, RequestAnswered
from validation.judge.evidence import NO_EVIDENCE
from validation.judge.timeline import Timeline
from validation.judge.views import judge_view, only_judged, view_of

LOG, SHELL = "log/team-a/train", "shell/team-a/train"
WORLD: list[Event] = [
    NodeSeen(0, "n1", 8),
    ProjectSet(1, "team-a", 4000),
    pod("train-0"),
    pod("train-1", phase="Pending"),
    pod("other-0"),
]


def verdict(name: str, *during: Event) -> str:
    """Of both judges, who agree."""
    events = [*WORLD, *during]
    window = Window(0, len(WORLD), len(events), 8, 9)
    ours = judge_view(name, Circumstances(), Timeline(events), window, least=NO_EVIDENCE).judgement
    world = World()
    for event in WORLD:
        world.apply(msgspec.to_builtins(event))
    if not any(isinstance(event, AnswerSeen) and event.exit_code for event in during):
        assert judge_again(name, world, [msgspec.to_builtins(event) for event in during]) == ours.verdict, (
            ours.reason
        )
    return ours.verdict


def kubelet(text: str, problem: str = "") -> RequestAnswered:
    return RequestAnswered(8, LOG, "GET", "/log", 0, digests(text, is_whole=False), problem=problem)


def printed(text: str, view: str = LOG, exit_code: int = 0) -> AnswerSeen:
    """What the command printed, as the run keeps it: without spaces around it, of a log the digests."""
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


def test_a_log_that_nobody_else_read_proves_nothing() -> None:
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
