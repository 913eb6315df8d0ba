"""Decides the verdict on one check: on a step from how it settled, on an invariant from its violations, or unrun."""

from collections.abc import Sequence
from dataclasses import dataclass

from validation.judge.convergence import Convergence, ConvergenceResult
from validation.judge.invariants import Violation
from validation.judge.units import seconds
from validation.judge.verdict import ACCEPTABLE, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the reason for it; a PASS needs none."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What the verdict on a step rests on.

    `command_failure` says why a command of the step failed; then nothing was waited for. `target_problem` says what is
    wrong with the cluster, empty if nothing is known to be. A contradiction between expectation and oracle is accepted
    where the step names an erratum of the reference.
    """

    command_failure: str = ""
    convergence: Convergence | None = None
    contradicts_oracle: bool = False
    names_erratum: bool = False
    target_problem: str = ""


def judge_before_run(
    *, is_step: bool, not_applicable: str, blocked_by: str, scenario_started: bool
) -> Judgement | None:
    """The verdict on a check that must not run; None if it must.

    `not_applicable` is the reason that the step itself declares. The invariants of a scenario that started are
    judged also when a step of it failed.
    """
    if not_applicable:
        return Judgement(Verdict.NOT_APPLICABLE, not_applicable)
    if blocked_by and (is_step or not scenario_started):
        return Judgement(Verdict.BLOCKED, f"not run: {blocked_by}")
    if not is_step and not scenario_started:
        return Judgement(Verdict.NOT_APPLICABLE, "no step of the scenario applies")
    return None


def judge_step(evidence: StepEvidence) -> Judgement:
    """The verdict on a step whose commands ran, or failed."""
    if evidence.command_failure:
        return Judgement(Verdict.FAIL, evidence.command_failure)
    if evidence.convergence is None:
        return Judgement(Verdict.INCONCLUSIVE, "the step was not waited for")
    if evidence.convergence.result != ConvergenceResult.CONVERGED:
        reason = _unreached(evidence.convergence)
        return Judgement(
            Verdict.FAIL, f"{reason}; {evidence.target_problem}" if evidence.target_problem else reason
        )
    if evidence.contradicts_oracle and not evidence.names_erratum:
        return Judgement(
            Verdict.ERROR,
            "the scenario expects what quotas and weights do not lead to, and names no erratum",
        )
    return Judgement(Verdict.PASS)


def judge_invariant(violations: Sequence[Violation]) -> Judgement:
    """FAIL if there is a violation; the violations themselves are the reasons."""
    return Judgement(Verdict.FAIL if violations else Verdict.PASS)


def judge_unfinished(*, started: bool, interrupted: str) -> Judgement:
    """The verdict on a check that the end of the run left without one. `interrupted` says what ended the run."""
    if started:
        return Judgement(Verdict.INCONCLUSIVE, f"not finished: {interrupted or 'the run ended'}")
    return Judgement(Verdict.INCONCLUSIVE, f"not run: {interrupted or 'the run ended before it'}")


def waive(judgement: Judgement, accepted: str) -> Judgement:
    """The judgement with a failure waived for the reason `accepted`; unchanged if that is empty or nothing failed."""
    if not accepted or judgement.verdict != Verdict.FAIL:
        return judgement
    reason = f"deviation accepted before the run: {accepted}. {judgement.reason}".strip()
    return Judgement(Verdict.WAIVED, reason)


def blocks_later_checks(verdict: Verdict, *, is_step: bool, fail_fast: bool) -> bool:
    """Whether the checks that follow must not run: those of the same state or, with `fail_fast`, all."""
    return verdict not in ACCEPTABLE and (is_step or fail_fast)


def _unreached(convergence: Convergence) -> str:
    within = seconds(convergence.within_ms)
    if convergence.result == ConvergenceResult.FLAPPED:
        return f"the expected state was reached but did not last, {convergence.flaps} times in {within}"
    if convergence.result == ConvergenceResult.RULED_OUT:
        return "a workload was evicted that nothing should have been taken from"
    return f"the expected state was not reached within {within}"
