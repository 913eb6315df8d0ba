"""Waiting without sleeping: on a condition with a deadline, and on a clock that the test turns."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


DEADLINE_SECONDS = 120.0
"""Many times as long as anything takes that a test waits for: a machine may be busy with other things."""

MAX_PAUSE_SECONDS = 0.05


async def until(condition: Callable[[], object], *, seconds: float = DEADLINE_SECONDS) -> None:
    """Let the loop run until the condition holds; fail at the deadline.

    The condition is looked at less and less often, so that what takes long has the processor for itself.
    """
    pause_seconds = 0.001
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.2, MAX_PAUSE_SECONDS)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a coroutine beside the test, and cancel it at the end; its own failure is raised."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]


class ManualClock:
    """Seconds that pass only when somebody sleeps on them, or when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Pass the time at once."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
