"""Converge and hold, with a simulated clock and stream of events."""

import pytest

from validation.judge.settling import Settling
from validation.run.converge import converge


class World:
    """A state that changes at the given milliseconds. `changed` moves the clock to the next change or deadline."""

    def __init__(self, **changes: bool) -> None:
        self.now_ms = 0
        self.changes = sorted((int(at[1:]), good) for at, good in changes.items())

    def clock(self) -> float:
        return self.now_ms / 1000

    def good(self) -> bool:
        return next((good for at, good in reversed(self.changes) if at <= self.now_ms), False)

    def differences(self) -> list[str]:
        return [] if self.good() else ["wrong"]

    async def changed(self, timeout_ms: int) -> None:
        deadline = self.now_ms + timeout_ms
        self.now_ms = min([at for at, _ in self.changes if at > self.now_ms] + [deadline, deadline])


@pytest.mark.parametrize(
    ("changes", "result", "first_ms", "flaps"),
    [
        ({"t0": True}, "CONVERGED", 0, 0),
        ({"t400": True}, "CONVERGED", 400, 0),
        ({}, "TIMED_OUT", None, 0),
        ({"t400": True, "t500": False}, "FLAPPED", 400, 1),
        ({"t400": True, "t500": False, "t600": True}, "CONVERGED", 600, 1),
        ({"t900": True}, "CONVERGED", 900, 0),
        ({"t900": True, "t1100": False, "t1200": True}, "FLAPPED", 900, 1),
        ({"t1100": True}, "TIMED_OUT", None, 0),
    ],
)
async def test_an_expectation_must_hold_in_time_and_then_last(
    changes: dict[str, bool], result: str, first_ms: int | None, flaps: int
) -> None:
    world = World(**changes)
    reached = await converge(world.differences, world.changed, within_ms=1000, hold_ms=300, clock=world.clock)
    assert (reached.result, reached.first_ms, reached.flaps) == (result, first_ms, flaps)
    if result == "CONVERGED":
        assert reached.stable_ms is not None
        assert reached.stable_ms >= (first_ms or 0) + 300


def test_an_expectation_that_can_no_longer_last_is_not_waited_for() -> None:
    reached = Settling(within_ms=60_000, hold_ms=0).note(5, holds=False, ruled_out=True)
    assert reached is not None
    assert reached.result == "RULED_OUT"
