"""The gravest verdict counts, and a check that did not run is never PASS."""

import pytest

from validation.judge.verdict import Verdict, gravest


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["PASS"], "PASS"),
        (["PASS", "NOT_APPLICABLE"], "PASS"),
        (["PASS", "WAIVED", "NOT_APPLICABLE"], "WAIVED"),
        (["WAIVED"], "WAIVED"),
        (["NOT_APPLICABLE"], "INCONCLUSIVE"),
        ([], "INCONCLUSIVE"),
        (["PASS", "BLOCKED"], "BLOCKED"),
        (["PASS", "INCONCLUSIVE", "BLOCKED"], "INCONCLUSIVE"),
        (["PASS", "FAIL", "BLOCKED", "INCONCLUSIVE"], "FAIL"),
        (["FAIL", "ERROR"], "ERROR"),
    ],
)
def test_the_gravest_verdict_decides(verdicts: list[str], expected: str) -> None:
    assert gravest([Verdict(verdict) for verdict in verdicts]) == expected
