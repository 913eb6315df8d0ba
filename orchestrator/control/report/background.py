"""Writes in the background without a waiting caller, repeated when they fail."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 30.0


class BackgroundWriter:
    """Calls `write` whenever it was woken since the last time; False says that it is to be called again later."""

    def __init__(
        self,
        write: Callable[[], Awaitable[bool]],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._write = write
        self._sleep = sleep
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """There is something to write. Never waits and never fails."""
        self._wanted.set()

    async def run(self) -> None:
        """Write until cancelled, with growing pauses while it fails."""
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if await self._write():
                failures = 0
                continue
            await self._sleep(min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(failures, 8)))
            failures += 1
            self.wake()
