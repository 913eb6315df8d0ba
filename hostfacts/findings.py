"""Finds faults in the facts of one host. Each finding ends with the first step of its repair."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hostfacts.log import KernelLog
from hostfacts.repairs import Repair, needs, of_fault

GOOD_CLOCKS: Final = ("tsc", "arch_sys_counter")
"""The counters of processors: x86, arm64."""
SLOW_CLOCKS: Final = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""The sources to which a kernel falls back. They are costly to read or coarse."""


PORT_UP: Final = frozenset({"4: ACTIVE", "5: LinkUp"})
CORRECTED_A_READING: Final = 10
"""Minimum number of new corrected errors of a memory controller that is a finding (mcelog: 10 in 24 hours)."""


@dataclass(frozen=True, slots=True)
class CounterChanges:
    """The differences between two readings of the counters of links.

    `changed` has the change by the name of the counter. `missing` are links of the first reading only. `unread` are
    counters without a figure.
    """

    changed: Mapping[str, int]
    missing: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def faults_of_log(log: KernelLog) -> list[str]:
    """Return the faults in the log, each once with its number of lines.

    Example: `Xid 79 on 0000:05:00 (2 times) -> reboot the host`.
    """
    counts = Counter(
        (fault.name, fault.bus_id, of_fault(fault.kind, fault.code, fault.text)) for fault in log.faults
    )
    return [
        needs(f"{error}{f' on {bus_id}' if bus_id else ''} ({count} times)", repair)
        for (error, bus_id, repair), count in sorted(counts.items())
    ]


def counter_changes(before: Mapping[str, int | None], after: Mapping[str, int | None]) -> CounterChanges:
    """Return the differences between two readings of the counters of a host, as `read_counters` returns them."""
    changed: dict[str, int] = {}
    missing, unread = [], []
    for counter, value in sorted(before.items()):
        if counter not in after:
            missing.append(counter.partition(" ")[0])
        elif value is None or (now := after[counter]) is None:
            unread.append(counter)
        elif now != value:
            changed[counter] = now - value
    return CounterChanges(changed, tuple(dict.fromkeys(missing)), tuple(unread))


def change_of_counter(counter: str, change: int) -> str:
    """Return the finding about a counter that changed. Example: `mlx5_0/1 link_downed: +2 -> reseat …`."""
    return needs(f"{counter}: {change:+d}", Repair.RESEAT)


def faults_of_ports(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the findings about ports that are no longer up. A port that was never up is not in use."""
    return [
        needs(f"{port} is {state}, it was {before[port]}", Repair.RESEAT)
        for port, state in sorted(after.items())
        if before.get(port) in PORT_UP and state not in PORT_UP
    ]


def faults_of_memory(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the findings about memory controllers: any uncorrected error, or many new corrected errors."""
    found = []
    for counter, count in sorted(after.items()):
        new = count - before.get(counter, count)
        if counter.endswith(" ue_count") and count:
            found.append(needs(f"{counter} is {count}", Repair.REPLACE_MEMORY))
        elif counter.endswith(" ce_count") and new >= CORRECTED_A_READING:
            found.append(needs(f"{counter}: {new:+d}", Repair.REPLACE_MEMORY))
    return found


def fault_of_clock(source: str) -> str | None:
    """Return the finding about a clock source, "" for a good one, None for an unknown one."""
    if source in SLOW_CLOCKS:
        return needs(f"clock source is {source}, neither {' nor '.join(GOOD_CLOCKS)}", Repair.SETTING)
    return "" if source in GOOD_CLOCKS else None
