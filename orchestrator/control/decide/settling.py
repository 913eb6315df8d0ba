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
    """Return when nothing has set `changed` for `settled_seconds`, or after `max_seconds`; then it is clear."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max_seconds):
            while changed.is_set():
                changed.clear()
                await asyncio.sleep(settled_seconds)
    changed.clear()
