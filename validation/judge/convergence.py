"""The result of waiting for the expectation of a step, as data."""

from enum import StrEnum

import msgspec


class ConvergenceResult(StrEnum):
    """Whether the cluster reached the expected state in time and then kept it."""

    CONVERGED = "CONVERGED"
    """The expected state was reached before the deadline and lasted."""
    FLAPPED = "FLAPPED"
    """The expected state was reached before the deadline, did not last, and was not reached again in time."""
    TIMED_OUT = "TIMED_OUT"
    """The expected state was never reached."""
    RULED_OUT = "RULED_OUT"
    """An event made the expected state impossible."""


class Convergence(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How the expected state was reached.

    `first_ms` and `stable_ms` count from the end of the step's commands: when the expected state was first reached, and
    when it had lasted for `hold_ms`. `flaps` counts how often the state was lost again.
    """

    result: ConvergenceResult
    within_ms: int
    hold_ms: int
    first_ms: int | None = None
    stable_ms: int | None = None
    flaps: int = 0
