"""Runs long computations, such as a what-if simulation of the scheduler, in one thread, so that pages stay quick."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_one_at_a_time = ThreadPoolExecutor(max_workers=1, thread_name_prefix="muster-web-what-if")


async def compute(function: Callable[[], T]) -> T:
    """Run a long computation in the thread, and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_one_at_a_time, function)
