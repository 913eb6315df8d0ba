"""How a step settled: the result of waiting for its expectation, as data."""

from enum import StrEnum

import msgspec


class ConvergenceResult(StrEnum):
    """Whether the expectation came true in time and then held."""

    CONVERGED = "CONVERGED"
    """It came true before the deadline and held."""
    FLAPPED = "FLAPPED"
    """It came true before the deadline, did not hold, and did not come true again in time."""
    TIMED_OUT = "TIMED_OUT"
    """It never came true."""
    RULED_OUT = "RULED_OUT"
    """Something happened after which it cannot come true any more."""


class Convergence(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How the expected state was reached.

    `first_ms` and `stable_ms` count from the end of the step's commands: when the expectation first held,
    and when it had held for `hold_ms`. `flaps` counts how often it ceased to hold.
    """

    result: ConvergenceResult
    within_ms: int
    hold_ms: int
    first_ms: int | None = None
    stable_ms: int | None = None
    flaps: int = 0
