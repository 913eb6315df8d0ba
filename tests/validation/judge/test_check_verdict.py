"""The verdict on one check from its events."""

import msgspec
import pytest

from tests.validation.judge.events import evicted, pod
from validation.judge.check_verdict import (
    Circumstances,
    Judgement,
    StepCheck,
    StepResult,
    Window,
    blocks_later_checks,
    judge_invariant,
    judge_step,
    judge_unrun,
    waive,
)
from validation.judge.events import CommandRun, Event, NodeSeen, ProjectSet
from validation.judge.evidence import Evidence
from validation.judge.scheduling.expectation import Expectation
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict
from validation.judge.waivers import Waiver

BEFORE: list[Event] = [
    NodeSeen(0, "n1", 8),
    ProjectSet(0, "p", 2000),
    CommandRun(10, "submit", "p", ("a",)),
]
WAITING = pod(20, "a", node="", phase="Pending", devices=())
RUNNING = pod(1100, "a")
ONE = Expectation(allocated_milli={"p": 1000}, total_milli=1000, running=1)


def settled(
    *after: Event, ended_ms: int = 60_000, least: Evidence | None = None, lines: tuple[str, ...] = ()
) -> StepResult:
    """Judge a step that began with BEFORE: from 100 ms on it waits at most 1.5 s for its state, which must then hold
    for 3 s.
    """
    check = StepCheck(ONE, ["p"], 1500, 3000, least or Evidence(1, 8, 1, 1), lines)
    events = [*BEFORE, WAITING, *after]
    window = Window(2, 4, len(events), 100, ended_ms)
    return judge_step(check, Circumstances(), Timeline(events), window)


@pytest.mark.parametrize(
    ("after", "ended_ms", "verdict", "reason"),
    [
        ([RUNNING], 5000, "PASS", ""),
        ([RUNNING], 4099, "INCONCLUSIVE", "the wait for the expected state was cut short"),
        ([], 1600, "FAIL", "the expected state was not reached within 1.5 s"),
        ([pod(1601, "a")], 9000, "FAIL", "the expected state was not reached within 1.5 s"),
        (
            [RUNNING, pod(1200, "a", node="", phase="Pending")],
            1600,
            "FAIL",
            "the expected state was reached but did not last, 1 times in 1.5 s",
        ),
        (
            [RUNNING, evicted(RUNNING, 1200)],
            1200,
            "FAIL",
            "a workload was evicted that nothing should have been taken from",
        ),
        ([RUNNING, pod(5000, "b")], 5000, "PASS", ""),
        (
            [RUNNING, pod(4000, "b", devices=(1,))],
            4100,
            "FAIL",
            "the expected state was reached but did not last",
        ),
    ],
)
def test_a_step_is_judged_by_how_it_settled(
    after: list[Event], ended_ms: int, verdict: str, reason: str
) -> None:
    judgement = settled(*after, ended_ms=ended_ms).judgement
    assert judgement.verdict == verdict
    assert judgement.reason.startswith(reason)


def test_events_after_the_decision_do_not_count() -> None:
    result = settled(RUNNING, pod(9000, "b", devices=(1,)))
    assert (result.judgement.verdict, list(result.differences)) == ("PASS", [])


@pytest.mark.parametrize(
    ("least", "reason"),
    [
        (Evidence(2, 16, 1, 1), "less evidence than the check needs: 1 of 2 nodes, 8 of 16 gpus"),
        (Evidence(1, 8, 2, 1), "less evidence than the check needs: 1 of 2 pods"),
        (Evidence(1, 8, 1, 9), "less evidence than the check needs: 2 of 9 events"),
    ],
)
def test_less_evidence_than_a_step_needs_is_an_error(least: Evidence, reason: str) -> None:
    assert settled(RUNNING, least=least).judgement == Judgement(Verdict.ERROR, reason)


def test_an_expectation_that_the_oracle_contradicts_is_an_error() -> None:
    judgement = settled(RUNNING, lines=("p: expected 1 GPUs, has 2",)).judgement
    assert judgement.verdict == "ERROR"
    assert judgement.reason.endswith("no erratum excuses it: p: expected 1 GPUs, has 2")


def test_the_problem_of_the_cluster_is_said_beside_a_failure() -> None:
    check = StepCheck(ONE, ["p"], 1500, 3000, Evidence())
    circumstances = Circumstances(target_problem="the operator ended")
    result = judge_step(check, circumstances, Timeline(BEFORE), Window(2, 3, 3, 100, 1600))
    assert result.judgement.reason.endswith("; the operator ended")


@pytest.mark.parametrize(
    ("circumstances", "verdict", "reason"),
    [
        (Circumstances(not_applicable="no hardware", blocked_by="x"), "NOT_APPLICABLE", "no hardware"),
        (Circumstances(blocked_by="a is FAIL"), "BLOCKED", "not run: a is FAIL"),
        (Circumstances(fault="the watch ended"), "ERROR", "the watch ended"),
        (Circumstances(unfinished="not run: interrupted"), "INCONCLUSIVE", "not run: interrupted"),
        (Circumstances(failure="`muster submit` failed"), "FAIL", "`muster submit` failed"),
        (Circumstances(), "INCONCLUSIVE", "the step was not waited for"),
    ],
)
def test_an_unfinished_check_is_not_green(circumstances: Circumstances, verdict: str, reason: str) -> None:
    check = StepCheck(ONE, ["p"], 1500, 3000, Evidence())
    assert judge_step(check, circumstances, Timeline(BEFORE), None).judgement == Judgement(
        Verdict(verdict), reason
    )


def invariant(name: str, *events: Event, least: Evidence | None = None) -> Judgement:
    window = Window(1, 1, len(events) + 1, 0, 10_000)
    return judge_invariant(
        name,
        Circumstances(),
        Timeline([BEFORE[0], *events, BEFORE[1]]),
        window,
        least=least or Evidence(1, 8, 1, 1),
    ).judgement


def test_an_invariant_without_a_subject_counts_for_nothing() -> None:
    quota = ProjectSet(0, "p", 2000)
    reason = "no subject, so it counts for nothing: no workload was evicted"
    assert invariant("in-quota-never-evicted", quota, RUNNING) == Judgement(
        Verdict.INCONCLUSIVE, reason, required=False
    )
    assert invariant("node-capacity", quota, RUNNING) == Judgement(Verdict.PASS)
    assert invariant("node-capacity", pod(1, "a", gpu_milli=9000)).verdict == "FAIL"


def test_an_invariant_over_an_empty_cluster_is_an_error() -> None:
    assert invariant("node-capacity", least=Evidence(2, 16, 1, 1)).verdict == "ERROR"


WAIVER = Waiver("s/a", "a customer", "known", "2026-06-30", fact="team-b")


@pytest.mark.parametrize(
    ("verdict", "check", "today", "expected"),
    [
        ("FAIL", "s/a", "2026-06-30", "WAIVED"),
        ("FAIL", "s/a", "2026-07-01", "FAIL"),
        ("FAIL", "s/b", "2026-06-30", "FAIL"),
        ("PASS", "s/a", "2026-06-30", "PASS"),
        ("ERROR", "s/a", "2026-06-30", "ERROR"),
        ("BLOCKED", "s/a", "2026-06-30", "BLOCKED"),
    ],
)
def test_only_a_failure_is_waived_and_not_for_ever(
    verdict: str, check: str, today: str, expected: str
) -> None:
    judgement = waive(Judgement(Verdict(verdict), "why"), check, ["team-b: 1"], [WAIVER], today)
    assert judgement.verdict == expected
    if expected == "WAIVED":
        assert judgement.reason == "deviation accepted by a customer until 2026-06-30: known. why"


OF_HOST = Waiver("h/layer/equality", "a customer", "known", "2026-06-30", fact="vBIOS", host="n2")
SAID = "n2 GPU 0: vBIOS 1, others 2"


@pytest.mark.parametrize(
    ("reason", "waivers", "today", "expected"),
    [
        (SAID, [OF_HOST], "2026-06-01", "WAIVED"),
        (SAID, [OF_HOST], "2025-06-01", "FAIL"),  # the waiver is for more than a year
        (f"{SAID}; n2 GPU 1: memory 16 GiB, others 32", [OF_HOST], "2026-06-01", "FAIL"),
        (f"{SAID}; n3 GPU 1: vBIOS 1, others 2", [OF_HOST], "2026-06-01", "FAIL"),
        ("n21 GPU 0: vBIOS 1, others 2", [OF_HOST], "2026-06-01", "FAIL"),
        ("10.n2 GPU 0: vBIOS 1, others 2", [OF_HOST], "2026-06-01", "FAIL"),
        (SAID.ljust(1000, "x"), [OF_HOST], "2026-06-01", "FAIL"),  # the sentence was cut
        (SAID, [msgspec.structs.replace(OF_HOST, host="")], "2026-06-01", "FAIL"),
        # the word would excuse everything
        (SAID, [msgspec.structs.replace(OF_HOST, fact="GPU")], "2026-06-01", "FAIL"),
        # the owner is blank, as a record could have it
        (SAID, [msgspec.structs.replace(OF_HOST, owner=" ")], "2026-06-01", "FAIL"),
        (SAID, [msgspec.structs.replace(OF_HOST, reason="")], "2026-06-01", "FAIL"),
        (
            f"{SAID}; n3 GPU 1: memory 16 GiB, others 32",
            [OF_HOST, msgspec.structs.replace(OF_HOST, host="n3", fact="memory 16 GiB")],
            "2026-06-01",
            "WAIVED",
        ),
    ],
)
def test_a_waiver_excuses_its_host_and_its_fact_and_nothing_else(
    reason: str, waivers: list[Waiver], today: str, expected: str
) -> None:
    failed = Judgement(Verdict.FAIL, reason)
    assert waive(failed, "h/layer/equality", [], waivers, today).verdict == expected


@pytest.mark.parametrize(
    ("verdict", "is_step", "fail_fast", "expected"),
    [
        ("PASS", True, True, False),
        ("WAIVED", True, True, False),
        ("NOT_APPLICABLE", True, True, False),
        ("FAIL", True, False, True),
        ("ERROR", True, False, True),
        ("FAIL", False, False, False),
        ("FAIL", False, True, True),
    ],
)
def test_a_check_that_builds_on_a_failed_step_is_blocked(
    verdict: str, is_step: bool, fail_fast: bool, expected: bool
) -> None:
    judgement = Judgement(Verdict(verdict))
    assert blocks_later_checks(judgement, is_step=is_step, fail_fast=fail_fast) == expected


def test_a_check_that_is_not_required_blocks_nothing() -> None:
    judgement = Judgement(Verdict.INCONCLUSIVE, "no subject", required=False)
    assert not blocks_later_checks(judgement, is_step=False, fail_fast=True)


def test_a_failure_fails_every_kind_of_check() -> None:
    """The record promises this of all kinds of checks, not only of steps."""
    failed = Circumstances(failure="`muster list` ended with exit code 1")
    assert judge_unrun(failed) == Judgement(Verdict.FAIL, failed.failure)
    unfinished = Circumstances(failure="it failed", unfinished="the run ended")
    assert judge_unrun(unfinished) == Judgement(Verdict.INCONCLUSIVE, "the run ended")


def test_a_pod_that_is_told_in_two_projects_is_one() -> None:
    events: list[Event] = [pod(1, "a", project="p"), pod(2, "a", project="q"), pod(3, "b", project="q")]
    timeline = Timeline(events)
    assert timeline.evidence_before(3, ["p", "q"]).pods == 2
    assert timeline.evidence_before(3, ["p"]).pods == 1
    assert timeline.evidence_before(1, ["p", "q"]).pods == 1
