"""Finds the errors of NVIDIA's driver in the kernel's log (`dmesg`, `journalctl -k`)."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts.host_facts import Xid

_BUS_ID: Final = r"(?P<bus_id>[0-9a-fA-F]+:[0-9a-fA-F:.]+)"
_PATTERNS: Final = (
    ("Xid", re.compile(rf"NVRM: Xid \(PCI:{_BUS_ID}\): (?P<code>\d+)(?:,\s*(?P<text>.*))?$")),
    # Of an NVSwitch. Those that are not fatal may be ignored, says the guide of the fabric manager.
    ("SXid", re.compile(rf"SXid \(PCI:{_BUS_ID}\): (?P<code>\d+), (?P<text>Fatal\b.*)$")),
    ("off the bus", re.compile(rf"NVRM: .*GPU (?:at (?:PCI:)?)?{_BUS_ID}:? .*(?P<text>fallen off the bus)")),
    ("RmInitAdapter failed", re.compile(rf"NVRM: GPU {_BUS_ID}: (?P<text>RmInitAdapter failed.*)$")),
)
"""What each is called, and how its line is written."""


def read_log(text: str) -> list[Xid]:
    """The Xids of a whole log. Raises LayerError for an empty one, which the kernel of a host never has."""
    if not text.strip():
        raise LayerError("dmesg: the kernel's log is empty, so it says nothing")
    return read_xids(text)


def read_xids(text: str) -> list[Xid]:
    """The errors of the driver in the log, in order; what is no Xid has its name for `kind`."""
    xids = []
    for line in text.splitlines():
        matches = ((kind, pattern.search(line.rstrip())) for kind, pattern in _PATTERNS)
        kind, match = next(((kind, match) for kind, match in matches if match is not None), ("", None))
        if match is not None:
            groups = match.groupdict()
            bus_id = groups["bus_id"].rstrip(":.").lower()
            xids.append(Xid(int(groups.get("code") or 0), bus_id, groups["text"] or "", kind))
    return xids
