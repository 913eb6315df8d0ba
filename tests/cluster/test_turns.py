"""A watch works as long as it waited."""

import asyncio
import itertools

import pytest

from orchestrator.cluster.turns import MAX_TURN_SECONDS, MIN_TURN_SECONDS, Turns


class Clock:
    """Seconds that pass only where the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("others_seconds", "turn_seconds"),
    [(0.0, MIN_TURN_SECONDS), (0.030, 0.030), (9.0, MAX_TURN_SECONDS)],
    ids=["nothing else", "128 answers", "a long reading"],
)
async def test_a_turn_is_as_long_as_what_the_watch_waited_for_within_bounds(
    others_seconds: float, turn_seconds: float
) -> None:
    clock = Clock()
    turns = Turns(clock)
    waits: list[float] = []

    async def others() -> None:
        while True:
            waits.append(clock.seconds)
            clock.seconds += others_seconds
            await asyncio.sleep(0)

    running = asyncio.ensure_future(others())
    for _ in range(3000):
        clock.seconds += 0.0001
        await turns.taken()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    lengths = [later - earlier - others_seconds for earlier, later in itertools.pairwise(waits)]
    assert len(lengths) > 3
    assert lengths[1:] == pytest.approx([turn_seconds] * (len(lengths) - 1), abs=0.00021)
