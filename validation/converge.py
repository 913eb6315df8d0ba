"""Converge and hold: wait on events until an expectation holds, then see that it keeps holding. Never a
fixed sleep.
"""

import time
from collections.abc import Awaitable, Callable

from validation.report.record import Convergence

CONVERGED = "CONVERGED"
FLAPPED = "FLAPPED"
TIMED_OUT = "TIMED_OUT"
RULED_OUT = "RULED_OUT"


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

    `changed(ms)` returns at the next event or after `ms`. CONVERGED: it held. FLAPPED: it did hold before the
    deadline, but did not last, and did not hold again in time. TIMED_OUT: it never held. RULED_OUT: something
    happened after which it cannot hold any more, so waiting for the deadline would tell nothing.
    """
    began = clock()
    result = Convergence(result=TIMED_OUT, within_ms=within_ms, hold_ms=hold_ms)
    since: int | None = None
    while True:
        now = int((clock() - began) * 1000)
        if not differences():
            if since is None and now > within_ms:
                return result
            since = now if since is None else since
            result.first_ms = since if result.first_ms is None else result.first_ms
            if now - since >= hold_ms:
                result.result, result.first_ms, result.stable_ms = CONVERGED, since, now
                return result
            remaining = since + hold_ms - now
        else:
            if since is not None:
                since = None
                result.flaps += 1
                result.result = FLAPPED
            if ruled_out():
                result.result = RULED_OUT
                return result
            if now >= within_ms:
                return result
            remaining = within_ms - now
        await changed(remaining + 1)
