"""Finds faults of GPUs, memory, PCIe, adapters and NFS in the kernel's log (`dmesg`, `journalctl -k`)."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts.host_facts import KernelLog, Xid

_BUS_ID: Final = r"(?P<bus_id>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F.:]+)"
_ANY_BUS_ID: Final = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")
_ADAPTER_WORDS: Final = (
    r"health compromised|[Ff]atal error|assert_var|device is in error|internal error|syndrome"
    r"|firmware .*(?:failed|hang|dead)|timed? ?out|timeout"
)
_FAULTS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("Xid", r"\bXid \((?:PCI:)?(?P<bus_id>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)(?:,\s*(?P<text>.*))?$"),
        # Of an NVSwitch. Those that are not fatal may be ignored, says the guide of the fabric manager.
        ("SXid", r"SXid \((?:PCI:)?(?P<bus_id>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+), (?P<text>Fatal\b.*)$"),
        ("off the bus", r"(?P<text>fallen off the bus|GPU is lost)"),
        ("RmInitAdapter failed", r"(?P<text>RmInitAdapter failed.*)$"),
        ("no GPU came up", r"NVRM: .*(?P<text>probe routine failed|No NVIDIA (?:GPU|devices))"),
        ("no GPU came up", r"nvidia: (?P<text>probe of .* failed)"),
        (
            "kernel error",
            r"(?P<text>Kernel panic|\bBUG: |\bOops: |(?:soft|hard) lockup|hard LOCKUP|I/O error).*$",
        ),
        ("memory error", r"(?P<text>EDAC .*\bUE\b.*|Memory failure: .*|Uncorrect\w+ memory error.*)$"),
        ("PCIe error", r"(?P<text>(?:AER|PCIe Bus Error|DPC): .*(?:Uncorrect\w*|[Ff]atal).*)$"),
        (
            "machine check",
            r"(?P<text>\[Hardware Error\]: .*(?:[Uu]ncorrect|severity: (?:fatal|recoverable)|\bPCC\b).*)$",
        ),
        ("machine check", r"mce: .*(?P<text>[Uu]ncorrect\w*.*|[Ff]atal.*)$"),
        ("slow PCIe link", r"mlx[45]_\w+ .*(?P<text>limited by .* PCIe.*)$"),
        ("adapter error", r"mlx[45]_\w+ .*(?P<text>event\[error\].*)$"),
        ("adapter error", rf"mlx[45]_\w+ .*(?P<text>(?:{_ADAPTER_WORDS}).*)$"),
        ("NFS error", r"\bnfs\d?: server (?P<text>.* (?:not responding|timed out).*)$"),
        (
            "NFS error",
            r"\b(?:NFS|nfs|RPC|lockd)\w*: .*(?P<text>(?:[Uu]nhandled error|timed out|not responding).*)$",
        ),
    )
)
"""The name of each fault, and the pattern of its line. If several match, the first counts."""
_NOTES: Final = re.compile(
    r"AER: (?:Multiple )?Corrected|severity=Corrected|\bCorrected error|severity: corrected|EDAC .*\bCE\b"
    r"|SXid \(.*\): \d+, Non-fatal|nfs\d?: server .* OK$|Port module event: .*Cable plugged|: Link (?:up|down)\b"
)
"""Lines that are no fault by themselves."""
_USUAL: Final = re.compile(
    "|".join(
        (
            r"NVRM: loading NVIDIA|NVRM: GPU at (?:PCI:)?[0-9a-fA-F:.]+: GPU-|NVRM: GPU Board Serial Number",
            r"NVRM: Persistence mode is deprecated|module verification failed|loading out-of-tree module",
            r": module license",
            r"AER: enabled with IRQ|(?:DPC|pciehp|PME): .*(?:enabled|Signaling|Slot)|EDAC MC: Ver",
            r"EDAC .*Giving out device",
            r"mce: CPU\d* supports|MCE: In-kernel|Error Record Serialization|RAS: Correctable Errors collector",
            r"_OSC: OS (?:supports|now controls|assumes)",
        )
    )
)
"""Lines that the kernel of a healthy host has, though a word in them is that of a fault."""
_WATCHED: Final = re.compile(
    r"\bNVRM|\bnvidia[-_a-z0-9]*:|\bnvidia 0|SXid|\bEDAC\b|\bmce\b|\[Hardware Error\]|\bAER\b|\bDPC\b|PCIe Bus Error"
    r"|\bpcieport\b|\bmlx[45]_|\bnfs\w*:|\bNFS\w*:|\bRPC\w*:|\blockd\b|\bGHES\b|\binfiniband\b"
)
_ILL: Final = re.compile(
    r"error|fail|fatal|\bfault|time[d]? ?out|fallen|\blost\b|uncorrect|corrupt|unhealthy|degrad|not respond|assert|hung"
    r"|stuck|panic|invalid|unable|cannot|can't|could not|overheat|over.?temp|high temp|throttl|abort|\bdead\b|\bdown\b"
    r"|exceed|unplugged|\bwarn|critical|violation|\bbad\b|denied|unexpected|unknown|unsupported|inaccessible|compromised|alarm|poison",
    re.IGNORECASE,
)


def read_log(text: str) -> KernelLog:
    """Return the faults and unknown lines of a whole log. Raises LayerError for an empty one: no kernel has it."""
    if not text.strip():
        raise LayerError("dmesg: the kernel's log is empty, so it says nothing")
    lines = [line.strip() for line in text.splitlines()]
    rest = [line for line in lines if _WATCHED.search(line) and _fault(line) is None]
    rest = [line for line in rest if not _USUAL.search(line)]
    notes = [line for line in rest if _NOTES.search(line)]
    unknown = [line for line in rest if not _NOTES.search(line) and ("NVRM" in line or _ILL.search(line))]
    return KernelLog(read_xids(text), unknown, notes)


def read_xids(text: str) -> list[Xid]:
    """Return the faults in the log, in order; one that is no Xid has its name for `kind`."""
    xids: list[Xid] = []
    place, age = "", 0
    for line in text.splitlines():
        bus_id = _ANY_BUS_ID.search(line)
        place, age = (bus_id[0], 0) if bus_id is not None else (place if age < _LINES else "", age + 1)
        found = _fault(line.strip())
        if found is not None:
            kind, match = found
            groups = match.groupdict()
            where = (groups.get("bus_id") or place).rstrip(":.").lower()
            xids.append(Xid(int(groups.get("code") or 0), where, groups["text"] or "", kind))
    return xids


_LINES: Final = 3
"""In how many lines the driver may say one thing: the first has the bus id."""


def _fault(line: str) -> tuple[str, re.Match[str]] | None:
    matches = ((kind, pattern.search(line)) for kind, pattern in _FAULTS)
    return next(((kind, match) for kind, match in matches if match is not None), None)
