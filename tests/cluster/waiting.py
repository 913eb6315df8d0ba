"""Waiting for a condition with a deadline, and on a clock that the test advances."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


DEADLINE_SECONDS = 120.0
"""Many times longer than any wait in a test, because a machine can be busy with other work."""

MAX_PAUSE_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0


async def until(condition: Callable[[], object], *, seconds: float = DEADLINE_SECONDS) -> None:
    """Let the event loop run until the condition is true; fail at the deadline.

    The condition is checked less and less often, so that a long operation gets the CPU.
    """
    pause_seconds = 0.001
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.2, MAX_PAUSE_SECONDS)


def poll(condition: Callable[[], object], what: str = "", *, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until the condition is true; fail with `what` at the deadline.

    The pause is four times as long as the check: a condition that starts a program, such as kubectl, would otherwise
    use a whole processor.
    """
    deadline = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        time.sleep(min(max(4 * (now - begin), 0.02), MAX_POLL_SECONDS))


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a coroutine during the block, and cancel it at the end. Raises its error if it fails."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]


class ManualClock:
    """A clock that advances when a task sleeps on it, or when the test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
