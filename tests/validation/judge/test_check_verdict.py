"""The verdict on one check, by tables: what was observed, and what follows from it."""

import pytest

from validation.judge.check_verdict import (
    Judgement,
    StepEvidence,
    blocks_later_checks,
    judge_before_run,
    judge_invariant,
    judge_step,
    judge_unfinished,
    waive,
)
from validation.judge.convergence import Convergence, ConvergenceResult
from validation.judge.invariants import Violation
from validation.judge.verdict import Verdict

CONVERGED = Convergence(ConvergenceResult.CONVERGED, 60_000, 3000, 100, 3100)
FLAPPED = Convergence(ConvergenceResult.FLAPPED, 60_000, 3000, 100, None, 2)
TIMED_OUT = Convergence(ConvergenceResult.TIMED_OUT, 1500, 3000)
RULED_OUT = Convergence(ConvergenceResult.RULED_OUT, 60_000, 3000)


@pytest.mark.parametrize(
    ("evidence", "verdict", "reason"),
    [
        (StepEvidence(convergence=CONVERGED), "PASS", ""),
        (StepEvidence(convergence=CONVERGED, target_problem="the operator ended"), "PASS", ""),
        (
            StepEvidence(convergence=TIMED_OUT),
            "FAIL",
            "the expected state was not reached within 1.5 s",
        ),
        (
            StepEvidence(convergence=TIMED_OUT, target_problem="the operator ended"),
            "FAIL",
            "the expected state was not reached within 1.5 s; the operator ended",
        ),
        (
            StepEvidence(convergence=FLAPPED),
            "FAIL",
            "the expected state was reached but did not last, 2 times in 60.0 s",
        ),
        (
            StepEvidence(convergence=RULED_OUT),
            "FAIL",
            "a workload was evicted that nothing should have been taken from",
        ),
        (
            StepEvidence(convergence=CONVERGED, contradicts_oracle=True),
            "ERROR",
            "the scenario expects what quotas and weights do not lead to, and names no erratum",
        ),
        (StepEvidence(convergence=CONVERGED, contradicts_oracle=True, names_erratum=True), "PASS", ""),
        (
            StepEvidence(convergence=TIMED_OUT, contradicts_oracle=True),
            "FAIL",
            "the expected state was not reached within 1.5 s",
        ),
        (StepEvidence(command_failure="`muster submit` failed"), "FAIL", "`muster submit` failed"),
        (StepEvidence(), "INCONCLUSIVE", "the step was not waited for"),
    ],
)
def test_a_step_is_judged_by_how_it_settled(evidence: StepEvidence, verdict: str, reason: str) -> None:
    assert judge_step(evidence) == Judgement(Verdict(verdict), reason)


@pytest.mark.parametrize(
    ("is_step", "not_applicable", "blocked_by", "scenario_started", "expected"),
    [
        (True, "", "", False, None),
        (True, "", "", True, None),
        (False, "", "", True, None),
        (True, "no such hardware", "", True, ("NOT_APPLICABLE", "no such hardware")),
        (True, "no such hardware", "a is FAIL", True, ("NOT_APPLICABLE", "no such hardware")),
        (True, "", "a is FAIL", True, ("BLOCKED", "not run: a is FAIL")),
        (False, "", "a is FAIL", False, ("BLOCKED", "not run: a is FAIL")),
        (False, "", "a is FAIL", True, None),
        (False, "", "", False, ("NOT_APPLICABLE", "no step of the scenario applies")),
    ],
)
def test_what_must_not_run_has_its_verdict_before(
    is_step: bool,
    not_applicable: str,
    blocked_by: str,
    scenario_started: bool,
    expected: tuple[str, str] | None,
) -> None:
    judgement = judge_before_run(
        is_step=is_step,
        not_applicable=not_applicable,
        blocked_by=blocked_by,
        scenario_started=scenario_started,
    )
    assert (judgement and (str(judgement.verdict), judgement.reason)) == expected


def test_one_violation_fails_an_invariant() -> None:
    assert judge_invariant([]).verdict == Verdict.PASS
    assert judge_invariant([Violation(1, "a GPU is held twice")]).verdict == Verdict.FAIL


@pytest.mark.parametrize(
    ("verdict", "accepted", "expected"),
    [
        ("FAIL", "", ("FAIL", "why")),
        ("FAIL", "known", ("WAIVED", "deviation accepted before the run: known. why")),
        ("PASS", "known", ("PASS", "why")),
        ("ERROR", "known", ("ERROR", "why")),
        ("BLOCKED", "known", ("BLOCKED", "why")),
    ],
)
def test_only_a_failure_is_waived(verdict: str, accepted: str, expected: tuple[str, str]) -> None:
    judgement = waive(Judgement(Verdict(verdict), "why"), accepted)
    assert (str(judgement.verdict), judgement.reason) == expected


@pytest.mark.parametrize(
    ("started", "interrupted", "reason"),
    [
        (False, "", "not run: the run ended before it"),
        (False, "interrupted by SIGTERM", "not run: interrupted by SIGTERM"),
        (True, "", "not finished: the run ended"),
        (True, "interrupted by SIGTERM", "not finished: interrupted by SIGTERM"),
    ],
)
def test_what_did_not_finish_is_inconclusive(started: bool, interrupted: str, reason: str) -> None:
    judgement = judge_unfinished(started=started, interrupted=interrupted)
    assert judgement == Judgement(Verdict.INCONCLUSIVE, reason)


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
def test_what_builds_on_a_failed_step_is_blocked(
    verdict: str, is_step: bool, fail_fast: bool, expected: bool
) -> None:
    assert blocks_later_checks(Verdict(verdict), is_step=is_step, fail_fast=fail_fast) == expected
