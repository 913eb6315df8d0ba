"""Waits for events until an expectation is satisfied, and then until it has lasted for a time.

It never sleeps for a fixed time.
"""

import time
from collections.abc import Awaitable, Callable

from validation.judge.convergence import Convergence
from validation.judge.settling import Settling


async def converge(
    differences: Callable[[], list[str]],
    changed: Callable[[int], Awaitable[None]],
    *,
    within_ms: int,
    hold_ms: int,
    clock: Callable[[], float] = time.monotonic,
) -> Convergence:
    """Wait until `differences()` becomes empty before `within_ms`, and then is empty for `hold_ms` without a break.

    `changed(ms)` returns at the next event or after `ms`.
    """
    began = clock()
    settling = Settling(within_ms=within_ms, hold_ms=hold_ms)
    while True:
        now_ms = int((clock() - began) * 1000)
        convergence = settling.note(now_ms, holds=not differences())
        if convergence is not None:
            return convergence
        await changed(settling.remaining_ms(now_ms) + 1)
