"""The time that a watch occupies the event loop before other tasks run."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

MIN_SLICE_SECONDS: Final = 0.002
MAX_SLICE_SECONDS: Final = 0.05


class TimeSlice:
    """The time slice of a watch. It is as long as the preceding run of the other tasks, within a minimum and a maximum.

    Example: the answers to 128 bindings occupy the event loop for 30 ms. Then the watch takes events for 30 ms. With
    slices of 8 events the watch took 270 events a second, fewer than the API server sends. `clock` gives monotonic
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + MIN_SLICE_SECONDS

    async def end_if_over(self) -> None:
        """If the slice is over, wait until the other tasks have run."""
        ended = self._clock()
        if ended < self._end:
            return
        await asyncio.sleep(0)
        begun = self._clock()
        self._end = begun + min(max(begun - ended, MIN_SLICE_SECONDS), MAX_SLICE_SECONDS)
