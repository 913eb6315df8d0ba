"""Figures of processes: processor time and memory."""

import os
import time
from pathlib import Path
from typing import Final

_SCHEDULER_CLOCK: Final = 2
"""Linux's code for the CPU clock of a process; it is in the three lowest bits of the clock's id."""


def processor_ms(pid: int) -> float:
    """Return the user and system time so far of all threads of a process. Raises OSError if it does not exist.

    /proc counts in ticks of 10 ms, which is too coarse for a round of half a second.
    """
    return time.clock_gettime_ns((~pid << 3) | _SCHEDULER_CLOCK) / 1_000_000


def busy_ms() -> float:
    """Return the processor time of the machine since its start, of all processes and processors together."""
    user_to_steal = [int(figure) for figure in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    idle, iowait = user_to_steal[3:5]
    return (sum(user_to_steal) - idle - iowait) * 1000 / os.sysconf("SC_CLK_TCK")


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
