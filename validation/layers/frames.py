"""Reads the results of `ping` with full frames."""

import re
from typing import Final

from validation.errors import LayerError

_PING: Final = re.compile(
    r"--- (?P<address>\S+) ping statistics ---\s+(?P<sent>\d+) packets transmitted, (?P<received>\d+) received"
)


def read_pings(text: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of sent echo requests and of answers, by address. Raises LayerError if there is no result, or
    two of an address.
    """
    pings = {match["address"]: (int(match["sent"]), int(match["received"])) for match in _PING.finditer(text)}
    if len(pings) < len(_PING.findall(text)):
        raise LayerError("ping: two results of the same address")
    if not pings:
        raise LayerError(f"ping: no statistics in its output: {text.strip()[:100]!r}")
    return pings
