"""Waits on events until an expectation holds, and then until it has held for a while. Never a fixed sleep."""

import time
from collections.abc import Awaitable, Callable

from validation.judge.convergence import Convergence, ConvergenceResult


async def converge(
    differences: Callable[[], list[str]],
    changed: Callable[[int], Awaitable[None]],
    *,
    within_ms: int,
    hold_ms: int,
    ruled_out: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Convergence:
    """Wait until `differences()` is empty for `hold_ms` without a break, having become so before `within_ms`.

    `changed(ms)` returns at the next event or after `ms`. `ruled_out()` says that the expectation cannot come true any
    more, so that waiting for the deadline is of no use.
    """
    began = clock()
    result = ConvergenceResult.TIMED_OUT
    first_ms: int | None = None
    since_ms: int | None = None
    flaps = 0
    while True:
        now_ms = int((clock() - began) * 1000)
        if not differences():
            if since_ms is None and now_ms > within_ms:
                break
            since_ms = now_ms if since_ms is None else since_ms
            first_ms = since_ms if first_ms is None else first_ms
            if now_ms - since_ms >= hold_ms:
                return Convergence(ConvergenceResult.CONVERGED, within_ms, hold_ms, since_ms, now_ms, flaps)
            remaining_ms = since_ms + hold_ms - now_ms
        else:
            if since_ms is not None:
                since_ms = None
                flaps += 1
                result = ConvergenceResult.FLAPPED
            if ruled_out():
                result = ConvergenceResult.RULED_OUT
                break
            if now_ms >= within_ms:
                break
            remaining_ms = within_ms - now_ms
        await changed(remaining_ms + 1)
    return Convergence(result, within_ms, hold_ms, first_ms, None, flaps)
