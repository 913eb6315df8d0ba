"""Tasks beside the decisions: checks that are repeated, and writes without a waiting caller."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 30.0


Task = Callable[[], Awaitable[None]]


async def repeat(
    name: str,
    task: Task,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Call `task` every `CHECK_SECONDS` until cancelled.

    An error of `task` is logged, once for each message, and the task is repeated. It stops no other task.
    """
    said = ""
    while True:
        try:
            await task()
        except Exception as error:
            if said != (said := f"{type(error).__name__}: {error}"):
                logger.exception("%s failed; it is repeated every %.0f s", name, CHECK_SECONDS)
        await sleep(CHECK_SECONDS)


class BackgroundWriter:
    """Calls `write` after each wake-up. If it returns False, it is called again later."""

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
