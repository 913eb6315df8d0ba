"""Background tasks of the operator: repeated checks, and writes for which no caller waits."""

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

    If `task` raises, the error is logged (repetitions of it are not), and the task is repeated. Other tasks continue.
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
    """Calls `write` after each `wake`. If `write` returns false, it is called again later."""

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
        """Request a call of `write`. Never waits and never fails."""
        self._wanted.set()

    async def run(self) -> None:
        """Write until cancelled, with growing pauses after failures in a row."""
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
