"""Finds the errors of NVIDIA's driver in the kernel's log (`dmesg`, `journalctl -k`)."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts import Xid

_XID: Final = re.compile(r"NVRM: Xid \(PCI:(?P<bus_id>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:,\s*(?P<text>.*))?$")


def read_log(text: str) -> list[Xid]:
    """The Xids of a whole log. Raises LayerError for an empty one, which the kernel of a host never has."""
    if not text.strip():
        raise LayerError("dmesg: the kernel's log is empty, so it says nothing")
    return read_xids(text)


def read_xids(text: str) -> list[Xid]:
    """The Xids of the log, in order."""
    matches = (_XID.search(line.rstrip()) for line in text.splitlines())
    return [
        Xid(int(match["code"]), match["bus_id"].lower(), match["text"] or "")
        for match in matches
        if match is not None
    ]
