"""The overall verdict: nothing that did not run is green."""

import pytest

from validation.judge.verdict import Outcome, Verdict, overall


def outcomes(*verdicts: str) -> list[Outcome]:
    return [Outcome(Verdict(verdict)) for verdict in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["PASS"], "PASS"),
        (["PASS", "WAIVED", "NOT_APPLICABLE"], "PASS"),
        (["WAIVED"], "PASS"),
        (["NOT_APPLICABLE"], "INCONCLUSIVE"),
        ([], "INCONCLUSIVE"),
        (["PASS", "BLOCKED"], "BLOCKED"),
        (["PASS", "INCONCLUSIVE", "BLOCKED"], "INCONCLUSIVE"),
        (["PASS", "FAIL", "BLOCKED", "INCONCLUSIVE"], "FAIL"),
        (["FAIL", "ERROR"], "ERROR"),
    ],
)
def test_the_gravest_required_verdict_decides(verdicts: list[str], expected: str) -> None:
    assert overall(outcomes(*verdicts)) == expected


def test_what_is_not_required_does_not_decide() -> None:
    assert overall([Outcome(Verdict.PASS), Outcome(Verdict.FAIL, required=False)]) == "PASS"
    assert overall([Outcome(Verdict.PASS, required=False)]) == "INCONCLUSIVE"
