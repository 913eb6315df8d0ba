"""Tests of groups of hosts by NCCL: the command of each host, and the outcome from the output of all hosts."""

import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from validation.judge.events import ToolRan
from validation.judge.hosts.group_findings import GroupTest
from validation.judge.hosts.group_search import Outcome, max_tests
from validation.judge.hosts.host_facts import System
from validation.judge.hosts.host_layer import MISSING_TOOL, DeclaredHost, HostSite, system_of
from validation.judge.units import spell

NCCL_NODES: Final = "nccl-nodes"
PROGRAM: Final = Path(__file__).with_name("all_reduce.py").read_text(encoding="utf-8")
"""The program of each host; its shell has it in the variable P, so that the record does not repeat it."""
TEST_SECONDS: Final = 180
GRACE_SECONDS: Final = 30
"""Time after the program's time limit until a host counts as not answering."""
BUFFER_BYTES: Final = 1 << 30
RATE_PERCENT: Final = 64
"""Minimum rate of a host in percent of its adapters' rate: 32 of 50 GB/s (nccl-tests issue 29; provisional)."""
MARGIN_PERCENT: Final = 5
"""If a rate differs from the minimum by at most this percentage, the outcome is UNCLEAR."""
SPREAD_PERCENT: Final = 10
"""Maximum difference between the rates of the hosts of a group.

All hosts wait for each other, so their rates should be equal: a larger difference is UNCLEAR.
"""
_FIRST_PORT: Final = 20000
_PORTS: Final = 10000
COMMAND: Final = re.compile(r'python3 -c "\$P" (\d+) \d+ (\d+) ')
_PRINTED: Final = re.compile(
    r"^all-reduce: (\d+) hosts, \d+ GPUs, \d+ bytes, (\d{1,15}) MB/s, (\d{1,15}) wrong$", re.MULTILINE
)


def joined_hosts(site: HostSite) -> list[DeclaredHost]:
    """Return the hosts that take part in the tests: those with GPUs."""
    return [host for host in site.hosts if host.gpus]


def command(site: HostSite, number: int, group: Sequence[DeclaredHost], index: int, address: str) -> str:
    """Return the command of a host of the group. All connect to the first host, at a port of this test alone."""
    gpus = min(host.gpus for host in group)
    port = _FIRST_PORT + (zlib.crc32(site.nonce.encode()) + number) % _PORTS
    root = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f'python3 -c "$P" {number} {index} {len(group)} {gpus} {root} {TEST_SECONDS} {BUFFER_BYTES}'


def first_command(site: HostSite, host: DeclaredHost) -> str:
    """Return the command of a host in the first test, which connects all hosts.

    ADDRESS stands for the first host's address.
    """
    hosts = joined_hosts(site)
    return command(site, 1, hosts, hosts.index(host), "ADDRESS") if len(hosts) > 1 and host in hosts else ""


def bound(site: HostSite) -> str:
    """Return the maximum number of tests and their maximum time, in words. They apply to every outcome."""
    hosts = len(joined_hosts(site))
    tests = max_tests(hosts)
    lasts = spell(tests * (TEST_SECONDS + GRACE_SECONDS))
    return f"1 test if all works, at most {tests} tests and {lasts}; all pairs are {hosts * (hosts - 1) // 2}"


def least_mbytes(group: Iterable[DeclaredHost], systems: Sequence[System]) -> int:
    """Return the minimum rate of a group in MB/s, from the slowest adapters in it; 0 without a figure."""
    found = [system_of(host, systems) for host in group]
    rates = [system.adapters * system.adapter_gbits * 125 for system in found if system is not None]
    return min(rates, default=0) * RATE_PERCENT // 100


def read_test(events: Iterable[ToolRan], least: int) -> GroupTest:
    """Return the test with its outcome, from the end of the program on each host; `least` is the minimum rate in
    MB/s.
    """
    every = list(events)
    group = frozenset(event.host for event in every)
    silent = next((e for e in every if e.problem or e.exit_code == MISSING_TOOL), None)
    if silent is not None:
        last = _last(silent.problem or silent.error_output) or "a program is missing"
        return GroupTest(group, Outcome.UNCLEAR, f"{silent.host}: {last}")
    broken = next((e for e in every if e.exit_code), None)
    if broken is not None:
        words = _last(broken.error_output or broken.output)
        return GroupTest(group, Outcome.FAILS, f"exit code {broken.exit_code}{f', {words}' if words else ''}")
    printed = {event.host: _PRINTED.findall(event.output) for event in every}
    odd = next(
        (host for host, found in printed.items() if len(found) != 1 or found[0][0] != str(len(group))), ""
    )
    if odd or len(every) != len(group):
        return GroupTest(group, Outcome.UNCLEAR, f"{odd or min(group)}: not the output of the program, once")
    rates = [int(found[0][1]) for found in printed.values()]
    if any(int(found[0][2]) for found in printed.values()):
        return GroupTest(group, Outcome.FAILS, "wrong values")
    return GroupTest(group, _of_rates(rates, least), f"{min(rates)} MB/s, at least {least}")


def _of_rates(rates: Sequence[int], least: int) -> Outcome:
    slowest = min(rates)
    if (max(rates) - slowest) * 100 > max(rates) * SPREAD_PERCENT or not slowest:
        return Outcome.UNCLEAR
    if abs(slowest - least) * 100 <= least * MARGIN_PERCENT:
        return Outcome.UNCLEAR
    return Outcome.WORKS if slowest > least else Outcome.SLOW


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200].replace(";", ",") if lines else ""
