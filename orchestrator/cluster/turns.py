"""How long a watch works before other work of the event loop has its turn."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

MIN_TURN_SECONDS: Final = 0.002
MAX_TURN_SECONDS: Final = 0.05


class Turns:
    """A watch takes events for as long as it waited for its turn, between the two bounds.

    Example: 128 answers take the event loop 30 ms. Then the watch takes events for 30 ms. Eight events in a turn would
    be 270 a second: the watch fell behind in a backlog. `clock` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + MIN_TURN_SECONDS

    async def taken(self) -> None:
        """An event was taken: let other work run if the turn is over."""
        ended = self._clock()
        if ended < self._until:
            return
        await asyncio.sleep(0)
        begun = self._clock()
        self._until = begun + min(max(begun - ended, MIN_TURN_SECONDS), MAX_TURN_SECONDS)
