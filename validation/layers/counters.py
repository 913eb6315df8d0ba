"""Reads the counters of a host's links, and the results of `ping` with full frames."""

import re
from typing import Final

from validation.errors import LayerError

_COUNTER: Final = re.compile(
    r"/sys/class/(?:net/[^/]+/device/net/(?P<interface>[^/]+)/(?:statistics/)?"
    r"|infiniband/(?P<adapter>[^/]+)/ports/(?P<port>\d+)/counters/)(?P<name>\w+):(?P<value>\d+|N/A.*)"
)
_PING: Final = re.compile(
    r"--- (?P<address>\S+) ping statistics ---\s+(?P<sent>\d+) packets transmitted, (?P<received>\d+) received"
)


def read_counters(text: str) -> dict[str, int | None]:
    """Return the counters by link and name; None if the adapter does not have the counter (`N/A (no PMA)`).

    Raises LayerError if there is no counter, or a line is not a counter.
    """
    counters: dict[str, int | None] = {}
    for line in text.splitlines():
        match = _COUNTER.fullmatch(line.strip())
        if match is None:
            raise LayerError(f"this is no counter of a link: {line[:100]!r}")
        link = match["interface"] or f"{match['adapter']}/{match['port']}"
        value = None if match["value"].startswith("N/A") else int(match["value"])
        counters[f"{link} {match['name']}"] = value
    if not counters:
        raise LayerError("there is no link with counters")
    return counters


def read_pings(text: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of sent echo requests and of answers, by address. Raises LayerError if there is no result."""
    pings = {match["address"]: (int(match["sent"]), int(match["received"])) for match in _PING.finditer(text)}
    if not pings:
        raise LayerError(f"ping: no statistics in its output: {text.strip()[:100]!r}")
    return pings
