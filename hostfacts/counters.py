"""Reads the error counters of a host's links and memory controllers, and the states of its RDMA ports."""

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
PORT_STATES: Final = ("/sys/class/infiniband/*/ports/*/state", "/sys/class/infiniband/*/ports/*/phys_state")
MEMORY_COUNTERS: Final = (
    "/sys/devices/system/edac/mc/mc*/ue_count",
    "/sys/devices/system/edac/mc/mc*/ce_count",
)
"""Uncorrected and corrected errors of memory, by controller, as the driver of EDAC counts them."""
_MISSING: Final = ": No such file or directory"
_COUNTER: Final = re.compile(
    r"/sys/class/(?:net/[^/]+/device/net/(?P<interface>[^/]+)/(?:statistics/)?"
    r"|infiniband/(?P<adapter>[^/]+)/ports/(?P<port>\d+)/counters/)(?P<name>\w+):(?P<value>\d+|N/A.*)"
)


def read_counters(text: str) -> dict[str, int | None]:
    """Return the counters by link and name; None if the adapter does not have the counter (`N/A (no PMA)`), or the
    kernel refuses to read it (`grep: PATH: Invalid argument`).

    Raises UnreadableOutput if there is no counter, or a line is not a counter.
    """
    counters: dict[str, int | None] = {}
    for line in text.splitlines():
        if line.startswith("grep: ") and line.endswith(_MISSING):
            continue
        match = _COUNTER.fullmatch(_REFUSED.sub(r"\1:N/A (\2)", line.strip()))
        if match is None:
            raise UnreadableOutput(f"this is no counter of a link: {line[:100]!r}")
        link = match["interface"] or f"{match['adapter']}/{match['port']}"
        value = None if match["value"].startswith("N/A") else int(match["value"])
        counters[f"{link} {match['name']}"] = value
    if not counters:
        raise UnreadableOutput("there is no link with counters")
    return counters


_REFUSED: Final = re.compile(r"grep: (\S+): (.+)")
_STATE: Final = re.compile(r"/sys/class/infiniband/([^/]+)/ports/(\d+)/(state|phys_state):(\d+: [\w ]+)")
_MEMORY: Final = re.compile(r"/sys/devices/system/edac/mc/(mc\d+)/(ue_count|ce_count):(\d+)")


def read_port_states(text: str) -> dict[str, str]:
    """Return the states by port and name. Raises UnreadableOutput if a line is not a state.

    Example: the state of `mlx5_0/1 state` is `4: ACTIVE`.
    """
    states: dict[str, str] = {}
    for line in text.splitlines():
        match = _STATE.fullmatch(line.strip())
        if match is None:
            raise UnreadableOutput(f"this is no state of a port: {line[:100]!r}")
        states[f"{match[1]}/{match[2]} {match[3]}"] = match[4]
    return states


def read_memory_counters(text: str) -> dict[str, int]:
    """Return the counters by controller and name, such as `mc0 ue_count`. Raises UnreadableOutput."""
    counters: dict[str, int] = {}
    for line in text.splitlines():
        match = _MEMORY.fullmatch(line.strip())
        if match is None:
            raise UnreadableOutput(f"this is no counter of memory: {line[:100]!r}")
        counters[f"{match[1]} {match[2]}"] = int(match[3])
    return counters
