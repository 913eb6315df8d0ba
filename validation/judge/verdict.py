"""The seven verdicts, and the overall verdict of a run. What did not run is never green."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The result of one check of an acceptance test."""

    PASS = "PASS"  # noqa: S105 - a verdict
    FAIL = "FAIL"
    WAIVED = "WAIVED"
    """It failed, and a deviation that names it was accepted beforehand."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """Declared in the scenario or profile before the run; never decided by the run itself."""
    BLOCKED = "BLOCKED"
    """Not run, because something that it builds on failed."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """Started, but it cannot be said whether it holds."""
    ERROR = "ERROR"
    """The harness, not the cluster, failed."""


ACCEPTABLE = frozenset({Verdict.PASS, Verdict.WAIVED, Verdict.NOT_APPLICABLE})
EXECUTED = frozenset({Verdict.PASS, Verdict.FAIL, Verdict.WAIVED})
_GRAVEST_FIRST = (Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.BLOCKED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict of one step; `required` ones decide about the run."""

    verdict: Verdict
    required: bool = True


def overall(outcomes: Iterable[Outcome]) -> Verdict:
    """PASS if every required step is PASS, WAIVED or declared NOT_APPLICABLE and at least one was executed.

    Otherwise the gravest verdict among the required steps: ERROR, FAIL, INCONCLUSIVE, BLOCKED. A run that
    executed nothing is INCONCLUSIVE.
    """
    required = [outcome.verdict for outcome in outcomes if outcome.required]
    for verdict in _GRAVEST_FIRST:
        if verdict in required:
            return verdict
    if any(verdict in {Verdict.PASS, Verdict.WAIVED} for verdict in required):
        return Verdict.PASS
    return Verdict.INCONCLUSIVE
