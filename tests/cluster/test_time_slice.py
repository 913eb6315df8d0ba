"""A watch occupies the event loop only as long as the other tasks did."""

import asyncio
import itertools

import pytest

from orchestrator.cluster.time_slice import MAX_SLICE_SECONDS, MIN_SLICE_SECONDS, TimeSlice


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("others_seconds", "slice_seconds"),
    [(0.0, MIN_SLICE_SECONDS), (0.030, 0.030), (9.0, MAX_SLICE_SECONDS)],
    ids=["nothing else", "128 answers", "a long reading"],
)
async def test_a_slice_is_as_long_as_other_tasks_ran_within_bounds(
    others_seconds: float, slice_seconds: float
) -> None:
    clock = Clock()
    time_slice = TimeSlice(clock)
    waits: list[float] = []

    async def others() -> None:
        while True:
            waits.append(clock.seconds)
            clock.seconds += others_seconds
            await asyncio.sleep(0)

    running = asyncio.ensure_future(others())
    for _ in range(3000):
        clock.seconds += 0.0001
        await time_slice.end_if_over()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    lengths = [later - earlier - others_seconds for earlier, later in itertools.pairwise(waits)]
    assert len(lengths) > 3
    assert lengths[1:] == pytest.approx([slice_seconds] * (len(lengths) - 1), abs=0.00021)
