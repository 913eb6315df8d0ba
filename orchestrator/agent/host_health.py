"""Decides from the facts of the host whether it has a fault that keeps new pods away. Pure.

    a lasting error in the kernel's log   a fault at once, until the node restarts
    other facts                           a fault after 2 readings in a row, until 12 readings in a row are good

Errors of GPUs are left out: the agent reads them from the driver, and the other GPUs of the node may be used.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from hostfacts.clock import read_clock_source
from hostfacts.counters import read_counters, read_memory_counters, read_port_states
from hostfacts.errors import UnreadableOutput
from hostfacts.findings import (
    PORT_UP,
    change_of_counter,
    counter_changes,
    fault_of_clock,
    faults_of_log,
    faults_of_memory,
    faults_of_ports,
)
from hostfacts.kernel_log import lines_after, read_log
from hostfacts.log import KernelLog, Xid
from orchestrator.agent.host import HostTexts, Text

BAD_READINGS: Final = 2
GOOD_READINGS: Final = 12
KERNEL_LOG: Final = "kernel-log"
LINKS: Final = "links"
CLOCK: Final = "clock-source"
PORTS: Final = "ports"
MEMORY: Final = "memory"
FACTS: Final = (KERNEL_LOG, LINKS, CLOCK, PORTS, MEMORY)
IF_PRESENT: Final = frozenset({PORTS, MEMORY})
"""Facts that a host need not have: RDMA ports, a driver of EDAC."""
OF_GPUS: Final = frozenset({"Xid", "off the bus", "RmInitAdapter failed", "no GPU came up"})
"""Errors in the log that concern one GPU."""
LASTING: Final = frozenset({"SXid", "memory error", "machine check", "PCIe error", "slow PCIe link"})
"""Errors in the log that count until the node restarts. The causes of all others can end by themselves."""
LINK_FAULTS: Final = frozenset(
    {
        "carrier_down_count",
        "link_downed",
        "link_error_recovery",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
    }
)
"""Counters that rise if a link fails. The others rise on healthy links too, for example if the network is congested."""
NO_FAULT: Final = "NoFault"
NOT_READ: Final = "NotRead"
HOST_FAULT: Final = "HostFault"
LASTING_FAULT: Final = "LastingHostFault"
MAX_FINDINGS: Final = 8
MAX_CHARACTERS: Final = 200
MAX_KEPT: Final = 1000
_UNREAD: Final = "not read: "

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostReading:
    """The state of the host: the faults and the problems of unread facts, by fact, and the counters of links.

    `read` are the facts that were read, at least in part.

    `unknown_lines` is the number of lines of hardware in the kernel's log that muster does not know. `reason` and
    `message` are for the condition of the node.
    """

    faults: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    counters: Mapping[str, int | None] = field(default_factory=dict)
    unknown_lines: int = 0
    reason: str = NOT_READ
    message: str = "the host was not read yet"

    @property
    def status(self) -> str:
        """The status of the condition: a fact that is not read is never good."""
        return {NO_FAULT: "False", NOT_READ: "Unknown"}.get(self.reason, "True")


@dataclass(slots=True)
class _Fact:
    """The faults of one fact, kept until enough readings in a row are good."""

    findings: tuple[str, ...] = ()
    is_fault: bool = False
    bad: int = 0
    good: int = 0

    def note(self, findings: Sequence[str] | None) -> None:
        """Note the findings of a reading; None if the fact was not read, which changes nothing."""
        if findings is None:
            return
        if findings:
            self.bad, self.good, self.findings = self.bad + 1, 0, tuple(findings)
            self.is_fault = self.is_fault or self.bad >= BAD_READINGS
            return
        self.bad, self.good = 0, self.good + 1
        if self.good >= GOOD_READINGS:
            self.is_fault = False


class HostHealth:
    """The health of the host from reading to reading.

    `carried` are the reason and the message of the condition that the previous agent process wrote since the boot.
    """

    def __init__(self, carried: tuple[str, str] | None = None) -> None:
        self._facts = {fact: _Fact() for fact in FACTS}
        self._lasting: list[Xid] = []
        self._last_line: float | None = None
        self._is_whole = True
        self._unknown_lines = 0
        self._counters: dict[str, int | None] = {}
        self._ports: dict[str, str] = {}
        self._memory: dict[str, int] = {}
        reason, message = carried or ("", "")
        self._lasts = reason == LASTING_FAULT
        self._before = _Fact((message.partition(_UNREAD)[0].removesuffix("; "),), is_fault=bool(reason))

    def next(self, texts: HostTexts) -> HostReading:
        """Return the state after one more reading."""
        unread: dict[str, str] = {}
        read = set()
        for fact, text, find in (
            (KERNEL_LOG, texts.kernel_log, self._of_log),
            (LINKS, texts.links, self._of_links),
            (CLOCK, texts.clock_source, self._of_clock),
            (PORTS, texts.ports, self._of_ports),
            (MEMORY, texts.memory, self._of_memory),
        ):
            if fact in IF_PRESENT and text == Text():
                continue
            findings, problem = _found(text, find)
            self._facts[fact].note(findings)
            if findings is not None:
                read.add(fact)
            if problem:
                unread[fact] = problem
        if not unread:
            self._before.note(())
        faults = self._faults()
        is_lasting = self._lasts or bool(self._lasting)
        reason = LASTING_FAULT if is_lasting else HOST_FAULT if faults else NOT_READ if unread else NO_FAULT
        return HostReading(
            faults,
            unread,
            frozenset(read),
            dict(self._counters),
            self._unknown_lines,
            reason,
            self._message(faults, unread, read),
        )

    def _faults(self) -> dict[str, tuple[str, ...]]:
        faults = {fact: state.findings for fact, state in self._facts.items() if state.is_fault}
        lasting = tuple(faults_of_log(KernelLog(self._lasting)))
        if lasting:
            faults[KERNEL_LOG] = (*lasting, *faults.get(KERNEL_LOG, ()))
        if not faults and (self._lasts or self._before.is_fault):
            faults[KERNEL_LOG] = self._before.findings
        return faults

    def _message(
        self, faults: Mapping[str, Sequence[str]], unread: Mapping[str, str], read: Container[str]
    ) -> str:
        findings = [finding[:MAX_CHARACTERS] for found in faults.values() for finding in found]
        more = len(findings) - MAX_FINDINGS
        parts = [*findings[:MAX_FINDINGS], *([f"{more} more"] if more > 0 else [])]
        parts += [f"{_UNREAD}{fact}: {problem[:MAX_CHARACTERS]}" for fact, problem in unread.items()]
        if KERNEL_LOG not in unread and not self._is_whole:
            parts.append("the kernel's log no longer begins with the boot")
        return "; ".join(parts) or f"read: {', '.join(fact for fact in FACTS if fact in read)}"

    def _of_log(self, text: str) -> tuple[list[str], str]:
        """Return the errors since the last reading that can end by themselves. The others are kept.

        Before the first reading, only lasting errors count.
        """
        newer, last = lines_after(text, -1.0 if self._last_line is None else self._last_line)
        is_first, self._last_line = self._last_line is None, last
        if last < 0:
            raise UnreadableOutput("the kernel's log has no times")
        if not newer:
            return [], ""
        log = read_log(newer)
        if is_first:
            self._is_whole = log.is_whole
        self._unknown_lines += len(log.unknown)
        self._lasting += [fault for fault in log.faults if fault.kind in LASTING]
        del self._lasting[MAX_KEPT:]
        passing = [fault for fault in log.faults if fault.kind not in LASTING | OF_GPUS]
        return [] if is_first else faults_of_log(KernelLog(passing)), ""

    def _of_links(self, text: str) -> tuple[list[str], str]:
        counters = read_counters(text)
        changes = counter_changes(self._counters, counters)
        # A missing link may be in the network of a pod: this is no fault, and it is not read.
        self._counters |= counters
        findings = [
            change_of_counter(counter, change)
            for counter, change in changes.changed.items()
            if _name(counter) in LINK_FAULTS and change > 0
        ]
        silent = [
            counter
            for counter, value in sorted(counters.items())
            if (value is None or counter in changes.unread) and _name(counter) in LINK_FAULTS
        ]
        problems = [
            *(f"{link} is missing" for link in changes.missing),
            *(f"{each}: no figure" for each in silent),
        ]
        return findings, "; ".join(problems)

    def _of_ports(self, text: str) -> tuple[list[str], str]:
        states = read_port_states(text)
        findings = faults_of_ports(self._ports, states)
        # keep the last state of each port in which it was up
        self._ports |= {port: state for port, state in states.items() if state in PORT_UP}
        return findings, ""

    def _of_memory(self, text: str) -> tuple[list[str], str]:
        counters = read_memory_counters(text)
        findings = faults_of_memory(self._memory, counters)
        self._memory = counters
        return findings, ""

    def _of_clock(self, text: str) -> tuple[list[str], str]:
        source = read_clock_source(text)
        finding = fault_of_clock(source)
        if finding is None:
            return [], f"muster does not know this clock source: {source}"
        return [finding] if finding else [], ""


def _found(text: Text, find: Callable[[str], tuple[list[str], str]]) -> tuple[list[str] | None, str]:
    """Return the findings in a text, and why a part of it was not read. Findings are None if nothing was read."""
    if text.problem:
        return None, text.problem
    try:
        return find(text.text)
    except UnreadableOutput as error:
        return None, str(error)


def _name(counter: str) -> str:
    return counter.rpartition(" ")[2]
