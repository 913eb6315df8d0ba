"""Finds faults of GPUs, memory, PCIe, adapters, storage and NFS in the kernel's log (`dmesg`, `journalctl -k`)."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from hostfacts.errors import UnreadableOutput
from hostfacts.kernel_lines import FAULTS, ILL, LINKS, LOOSE, NOTES, PARTS, STRICT, UP, USUAL
from hostfacts.log import KernelLog, Xid

_ANY_BUS_ID: Final = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")
_STAMP: Final = re.compile(
    r"(?:<\d+>)?(?:\w+ *:\w+ *: )?(?:"
    r"\[ *\+?\d+\.\d+(?:, *\w+)?\]|\[\S+ \S+ [ \d]\d [\d:]+ \d{4}\]|\d{4}-\d\d-\d\dT[\d:.,]+(?:[+-][\d:]+|Z)?"
    r"|[^\W\d]\S* [ \d]\d \d\d:[\d:]+|\d+,\d+,\d+,[^;]*;)(?: *\S+ kernel:)?(?: *\[ *\d+\.\d+\])?"
    r"(?: *\[ *[CT]\d+\])? ?"
)
"""The time before a message, as `dmesg`, `journalctl` and `/dev/kmsg` print it in any language.

The thread or processor can follow, as `[ T7914]`.
"""
_BEGINS: Final = re.compile(r"(?:Booting )?Linux (?:version \d|on physical CPU)")
_SECONDS: Final = re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\]")
_ERRORS_A_LOG: Final = 10
"""If a log has at least this number of corrected memory errors, their lines are unknown instead of notes (mcelog: 10 in
24 hours).
"""
_LINK_ERRORS_A_LOG: Final = 81
"""If a log has at least this number of errors of PCIe links, their lines count as unknown: DCGM allows 80 replays
(diag-skus.yaml).
"""
_FALLS_A_LOG: Final = 10
"""If a link changed to down at least this number of times, its lines count as unknown. The number is a choice."""
_LINES: Final = 3
"""Maximum number of lines of one message of the driver; the first line has the bus id."""


def read_log(text: str) -> KernelLog:
    """Return the faults, unknown lines and notes of a log. Raises UnreadableOutput if the text is not a kernel log."""
    lines = [(line.strip(), message, fault) for line, message, fault in _lines(text) if line.strip()]
    is_whole = any(_BEGINS.search(message) for _, message, _ in lines)
    faults = [fault for *_, fault in lines if fault is not None]
    if not is_whole and not faults and not any(_STAMP.match(line) for line, *_ in lines):
        raise UnreadableOutput(
            f"dmesg: this is not the kernel's log, so it says nothing: {text.strip()[:100]!r}"
        )
    rest = [(line, message) for line, message, fault in lines if fault is None]
    down, up = _links([message for _, message in rest])
    notes, unknown = [], []
    corrected = _corrected([message for _, message in rest])
    groups = {match[1] for _, message in rest if (match := _GROUP.match(message)) and _MILD.search(message)}
    mild = False
    for line, message in rest:
        group = _GROUP.match(message)
        is_note = NOTES.search(message) is not None or (group is not None and group[1] in groups)
        is_note = is_note or (mild and "error status/mask=" in message) or message in up
        mild = is_note
        if any(pattern.search(message) for pattern in corrected):
            is_note = False
        if is_note or _continues(message, text):
            notes.append(line)
        elif message in down or _is_unknown(message):
            unknown.append(line)
    return KernelLog(faults, unknown, notes, is_whole)


def lines_after(text: str, seconds: float) -> tuple[str, float]:
    """Return the lines that are newer than a time since the boot, and the time of the last line.

    Example: `lines_after("[ 1.0] a\\n[ 2.0] b\\n", 1.0)` returns `('[ 2.0] b', 2.0)`.
    """
    newer: list[str] = []
    last = at = seconds
    for line in text.splitlines():
        match = _SECONDS.match(line)
        at = float(match[1]) if match is not None else at
        if at > seconds:
            newer.append(line)
            last = max(last, at)
    return "\n".join(newer), last


def _corrected(messages: Sequence[str]) -> list[re.Pattern[str]]:
    """Return the patterns of corrected errors that are too many."""
    modules = sum(int(match[1]) for message in messages if (match := _MODULE_ERRORS.search(message)))
    links = sum(_LINK_ERRORS.search(message) is not None for message in messages)
    counts = ((_MODULE_ERRORS, modules, _ERRORS_A_LOG), (_LINK_ERRORS, links, _LINK_ERRORS_A_LOG))
    return [pattern for pattern, count, most in counts if count >= most]


_MODULE_ERRORS: Final = re.compile(r"EDAC .*: (\d+) CE\b")
_LINK_ERRORS: Final = re.compile(r"PCIe Bus Error: severity=Correct(?:ed|able)")
_GROUP: Final = re.compile(r"\{(\d+)\}\[Hardware Error\]: ")
_MILD: Final = re.compile(r"event severity: corrected")
_OF_A_PROCESS: Final = re.compile(
    "|".join(
        (
            r"^(?:traps: )?.{1,15}\[\d+\](?:: segfault at | general protection fault| trap | bad frame )",
            r"\bKilled process \d+ \(",
            r"^oom-kill:",
            r"^oom_reaper: ",
            r"^.{1,15} invoked oom-killer",
            r"^.{1,15}: page allocation failure",
            r"\bComm: ",
            r"^process '.*' started with executable stack",
            r"^warning: (?:process )?`",
        )
    )
)
"""Lines in which the kernel prints the name of a process."""
_NAMES_ITS_PLACE: Final = frozenset(
    {"memory error", "NFS error", "storage error", "host too hot", "kernel error"}
)
_DETAIL: Final = re.compile(r"SXid \(\S+\): (\d+), (?:Severity \d|Data \{)")


def _message(line: str) -> str:
    """Return the line without its time."""
    return _STAMP.sub("", line.strip(), count=1).strip()


def _continues(message: str, text: str) -> bool:
    """Return whether the message has details of an error of an NVSwitch that another line names."""
    match = _DETAIL.search(message)
    return match is not None and re.search(rf"\): {match[1]}, (?:Non-fatal|Fatal)", text) is not None


def _is_unknown(message: str) -> bool:
    if STRICT.search(message):
        return USUAL.fullmatch(message) is None
    return bool(LOOSE.search(message) and ILL.search(message)) and USUAL.fullmatch(message) is None


def _links(messages: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the lines of links whose last state in the log is down, and all other lines of links.

    A module without a cable since the boot is not in use, and neither is its link. Other adapters than mlx4 and mlx5
    report a link without a cable as down. So their links count only if they were up before. A link that often changed
    to down counts as down.
    """
    last: dict[tuple[str, str], re.Match[str]] = {}
    used: set[tuple[str, str]] = set()
    falls = Counter[tuple[str, str]]()
    every = [pattern.match(message) for message in messages for pattern in LINKS]
    matches = [match for match in every if match is not None]
    for match in matches:
        key = (match["bus_id"], match.groupdict().get("port") or match["face"])
        if match["state"] in UP:
            used.add(key)
        elif key in last and last[key]["state"] in UP:
            falls[key] += 1
        if falls[key] < _FALLS_A_LOG or match["state"] not in UP:
            last[key] = match
    empty = {
        bus_id
        for (bus_id, _), match in last.items()
        if match["state"] == "unplugged" and (bus_id, match["port"]) not in used
    }
    down = {
        match[0]
        for key, match in last.items()
        if match["state"] not in UP and (key in used or (key[0] not in empty and "Link is" not in match[0]))
    }
    return down, {match[0] for match in matches} - down


def read_xids(text: str) -> list[Xid]:
    """Return the faults in the log, in order. If a fault is not an Xid, its `kind` is its name."""
    return [fault for *_, fault in _lines(text) if fault is not None]


def _lines(text: str) -> Iterator[tuple[str, str, Xid | None]]:
    """Yield each line, its message, and its fault if it has one."""
    place, age = "", 0
    for line in text.splitlines():
        bus_id = _ANY_BUS_ID.search(line)
        place, age = (bus_id[0], 0) if bus_id is not None else (place if age < _LINES else "", age + 1)
        message = _message(line)
        yield line, message, _fault(message, place)


def _fault(message: str, place: str) -> Xid | None:
    """Return the fault that the message names.

    If the message has no bus id, `place` is used: the last bus id before it. A fault in `_NAMES_ITS_PLACE` belongs to
    no earlier line, and has the name of its part. Example: a silent NFS server after a line of an adapter.

    A line about a process has no fault, because users choose the names of processes. Example: the line
    `AER: fatal[7]: segfault at 0` is of a process named `AER: fatal`.
    """
    if _OF_A_PROCESS.search(message):
        return None
    matches = ((kind, pattern.search(message)) for kind, pattern in FAULTS)
    kind, match = next(((kind, match) for kind, match in matches if match is not None), ("", None))
    if match is None:
        return None
    groups = match.groupdict()
    before = "" if kind in _NAMES_ITS_PLACE else place
    where = (groups.get("bus_id") or before).rstrip(":.").lower() or _part(kind, message)
    return Xid(int(groups.get("code") or 0), where, groups["text"] or "", kind)


def _part(kind: str, message: str) -> str:
    """Return the name of the part that the message gives; empty if it gives none.

    Example: `_part("storage error", "I/O error, dev sdc, sector 1")` returns `'sdc'`.
    """
    match = PARTS[kind].search(message) if kind in PARTS else None
    return match[match.lastindex or 0] if match is not None else ""
