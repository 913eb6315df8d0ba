"""Figures of processes, and how many requests a client has in flight."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from orchestrator.control.carry_out.requests import REQUESTS_IN_FLIGHT

_SCHEDULER_CLOCK: Final = 2
"""Linux's code for the CPU clock of a process; it is in the three lowest bits of the clock's id."""


async def in_flight(work: Callable[[int], Awaitable[None]], count: int) -> None:
    """Do the work for each number below `count`, with `REQUESTS_IN_FLIGHT` numbers at a time, as the operator does."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(REQUESTS_IN_FLIGHT)))


def processor_ms(pid: int) -> float:
    """Return the user and system time so far of all threads of a process. Raises OSError if it does not exist.

    /proc counts in ticks of 10 ms, which is too coarse for a round of half a second.
    """
    clock = (~pid << 3) | _SCHEDULER_CLOCK
    return time.clock_gettime_ns(clock) / 1_000_000


def busy_ms() -> float:
    """Return the processor time of the machine since its start, of all processes and processors together."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    figures = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    spent = sum(
        int(figure) for name, figure in zip(names, figures, strict=False) if name not in ("idle", "iowait")
    )
    return spent * 1000 / os.sysconf("SC_CLK_TCK")


def peak_rss_bytes(pid: int | None = None) -> int:
    """Return the peak memory of a process, by default of this one."""
    return _status_bytes(pid, "VmHWM")


def rss_bytes(pid: int) -> int:
    """The memory that a process has now."""
    return _status_bytes(pid, "VmRSS")


def _status_bytes(pid: int | None, field: str) -> int:
    for line in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
