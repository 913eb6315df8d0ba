"""Runs the scheduler's own rules for explanations and what-ifs in a thread, one at a time: pages stay quick."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_one_at_a_time = ThreadPoolExecutor(max_workers=1, thread_name_prefix="muster-web-what-if")


async def compute(function: Callable[[], T]) -> T:
    """Return the result of a function that computes for long, from another thread."""
    return await asyncio.get_running_loop().run_in_executor(_one_at_a_time, function)
