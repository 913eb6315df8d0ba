"""Waits for a pause of changes, so that simultaneous changes are decided on together."""

import asyncio
from contextlib import suppress

from orchestrator.control.decide.intervals import MAX_SETTLING_SECONDS, SETTLED_SECONDS


async def settle(
    changed: asyncio.Event,
    *,
    settled_seconds: float = SETTLED_SECONDS,
    max_seconds: float = MAX_SETTLING_SECONDS,
) -> None:
    """Wait until `changed` was not set for `settled_seconds`, at most `max_seconds`; then clear it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max_seconds):
            while changed.is_set():
                changed.clear()
                await asyncio.sleep(settled_seconds)
    changed.clear()
