"""The input and the output of an invariant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from validation.judge.events import Event


class Violation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An invariant was violated at `t_ms`."""

    t_ms: int
    message: str


@dataclass(frozen=True, slots=True)
class History:
    """The events up to `end_ms`, judged from `since_ms` on.

    `window_ms` is the maximum time for the binding of a gang.
    """

    events: Sequence[Event]
    end_ms: int
    window_ms: int = 5000
    since_ms: int = 0


Invariant = Callable[[History], list[Violation]]


def first_of_each(violations: Sequence[Violation]) -> list[Violation]:
    """Return the first violation of each message."""
    first: dict[str, Violation] = {}
    for violation in violations:
        first.setdefault(violation.message, violation)
    return list(first.values())
