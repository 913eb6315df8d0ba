"""`orchestrator.control.report.background`: failed work is repeated, and stops nothing else."""

import asyncio
import logging

import pytest

from orchestrator.control.report.background import CHECK_SECONDS, repeat


class Stopped(BaseException):
    """Ends the loop, because the test has its result."""


async def test_work_that_raises_is_repeated_and_the_same_error_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = 0
    slept: list[float] = []

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls in {2, 3}:
            raise KeyError("uid-7")

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)
        if len(slept) == 5:
            raise Stopped

    with caplog.at_level(logging.ERROR), pytest.raises(Stopped):
        await repeat("the check of nodes", work, sleep=sleep)
    assert (calls, slept) == (5, [CHECK_SECONDS] * 5)
    assert [record.getMessage() for record in caplog.records] == [
        "the check of nodes failed; it is repeated every 5 s"
    ]


async def test_work_that_is_cancelled_ends() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(repeat("a watch", work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
