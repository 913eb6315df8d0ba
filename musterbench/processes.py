"""Figures of processes, and how many requests a client has in flight."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from orchestrator.control.requests import REQUESTS_IN_FLIGHT


async def in_flight(work: Callable[[int], Awaitable[None]], count: int) -> None:
    """Do the work for each number below `count`, as many at a time as the operator has requests in flight."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(REQUESTS_IN_FLIGHT)))


def processor_ms(pid: int) -> float:
    """Processor time of a process so far."""
    # the name of the program, in parentheses, may hold anything; user and system time are the 14th and 15th field
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def busy_ms() -> float:
    """Processor time that the whole machine has spent on anything since it started, all processors together."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    figures = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    spent = sum(
        int(figure) for name, figure in zip(names, figures, strict=False) if name not in ("idle", "iowait")
    )
    return spent * 1000 / os.sysconf("SC_CLK_TCK")


def peak_rss_bytes(pid: int | None = None) -> int:
    """The most memory that a process, or this one, has had at once."""
    return _status_bytes(pid, "VmHWM")


def rss_bytes(pid: int) -> int:
    """The memory that a process has now."""
    return _status_bytes(pid, "VmRSS")


def _status_bytes(pid: int | None, field: str) -> int:
    for line in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0
