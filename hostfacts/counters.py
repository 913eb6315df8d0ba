"""Reads the counters of a host's links."""

import re
from typing import Final

from hostfacts.errors import UnreadableOutput

COUNTERS: Final = (
    "/sys/class/net/*/device/net/*/carrier_down_count",
    "/sys/class/net/*/device/net/*/statistics/rx_errors",
    "/sys/class/net/*/device/net/*/statistics/tx_errors",
    "/sys/class/net/*/device/net/*/statistics/rx_missed_errors",
    "/sys/class/infiniband/*/ports/*/counters/link_downed",
    "/sys/class/infiniband/*/ports/*/counters/symbol_error",
    "/sys/class/infiniband/*/ports/*/counters/port_rcv_errors",
    "/sys/class/infiniband/*/ports/*/counters/port_rcv_remote_physical_errors",
    "/sys/class/infiniband/*/ports/*/counters/port_xmit_discards",
    "/sys/class/infiniband/*/ports/*/counters/link_error_recovery",
    "/sys/class/infiniband/*/ports/*/counters/local_link_integrity_errors",
    "/sys/class/infiniband/*/ports/*/counters/excessive_buffer_overrun_errors",
)
"""The counters of physical interfaces and RDMA ports.

Bonds and VLANs are left out, because they use these interfaces.
"""
_COUNTER: Final = re.compile(
    r"/sys/class/(?:net/[^/]+/device/net/(?P<interface>[^/]+)/(?:statistics/)?"
    r"|infiniband/(?P<adapter>[^/]+)/ports/(?P<port>\d+)/counters/)(?P<name>\w+):(?P<value>\d+|N/A.*)"
)


def read_counters(text: str) -> dict[str, int | None]:
    """Return the counters by link and name; None if the adapter does not have the counter (`N/A (no PMA)`).

    Raises UnreadableOutput if there is no counter, or a line is not a counter.
    """
    counters: dict[str, int | None] = {}
    for line in text.splitlines():
        match = _COUNTER.fullmatch(line.strip())
        if match is None:
            raise UnreadableOutput(f"this is no counter of a link: {line[:100]!r}")
        link = match["interface"] or f"{match['adapter']}/{match['port']}"
        value = None if match["value"].startswith("N/A") else int(match["value"])
        counters[f"{link} {match['name']}"] = value
    if not counters:
        raise UnreadableOutput("there is no link with counters")
    return counters
