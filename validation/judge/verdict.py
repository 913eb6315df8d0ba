"""The seven verdicts. A check that did not run never passes."""

from collections.abc import Collection
from enum import StrEnum


class Verdict(StrEnum):
    """The result of one check of an acceptance test, of one requirement, or of a run."""

    PASS = "PASS"  # noqa: S105 - a verdict
    FAIL = "FAIL"
    WAIVED = "WAIVED"
    """The check failed, and a waiver that names it was accepted before the run."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """The profile declared before the run that the check does not apply."""
    BLOCKED = "BLOCKED"
    """The check was not run, because a check on which it builds did not pass."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """There is no verdict, because the check did not run, did not finish, or found nothing to judge."""
    ERROR = "ERROR"
    """The harness failed and not the cluster, or there is less evidence than the check needs."""


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
    """Return the first of ERROR, FAIL, INCONCLUSIVE, BLOCKED, WAIVED and PASS that occurs; INCONCLUSIVE if none
    does.
    """
    return next((verdict for verdict in _GRAVEST_FIRST if verdict in verdicts), Verdict.INCONCLUSIVE)
