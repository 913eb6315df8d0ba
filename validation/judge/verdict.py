"""The seven verdicts. A check that did not run never passes."""

from collections.abc import Collection
from enum import StrEnum


class Verdict(StrEnum):
    """The result of one check of an acceptance test, of one requirement, or of a run."""

    PASS = "PASS"  # noqa: S105 - a verdict
    FAIL = "FAIL"
    WAIVED = "WAIVED"
    """It failed, and a deviation that names it was accepted beforehand."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """Declared in the profile before the run; never decided by the run itself."""
    BLOCKED = "BLOCKED"
    """Not run, because something that it builds on failed."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """It cannot be said whether it holds: not run, not finished, or nothing to judge."""
    ERROR = "ERROR"
    """The harness, not the cluster, failed, or the evidence is less than the least that the check needs."""


ACCEPTABLE = frozenset({Verdict.PASS, Verdict.WAIVED, Verdict.NOT_APPLICABLE})
ACCEPTABLE_RUNS = frozenset({Verdict.PASS, Verdict.WAIVED})
_GRAVEST_FIRST = (
    Verdict.ERROR,
    Verdict.FAIL,
    Verdict.INCONCLUSIVE,
    Verdict.BLOCKED,
    Verdict.WAIVED,
    Verdict.PASS,
)


def gravest(verdicts: Collection[Verdict]) -> Verdict:
    """The first of ERROR, FAIL, INCONCLUSIVE, BLOCKED, WAIVED and PASS that is among them; INCONCLUSIVE of nothing."""
    return next((verdict for verdict in _GRAVEST_FIRST if verdict in verdicts), Verdict.INCONCLUSIVE)
