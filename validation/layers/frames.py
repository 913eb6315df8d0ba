"""Reads the results of `ping` with full frames."""

import re
from typing import Final

from validation.errors import LayerError

_PING: Final = re.compile(
    r"--- (?P<address>\S+) ping statistics ---[^\n]*\n\s*(?P<sent>\d+) packets transmitted, (?P<received>\d+) received"
)
_PAYLOAD: Final = re.compile(r"^PING .*? (\d+)(?:\(\d+\))? (?:data bytes|bytes of data)", re.MULTILINE)
_ANSWER: Final = re.compile(
    r"^(\d+) bytes from \S+: icmp_seq=\d+ ttl=\d+ time=[\d.]+ ms$(\nwrong data)?", re.MULTILINE
)
ICMP_HEADER_BYTES: Final = 8


def read_pings(text: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of sent echo requests and of whole answers, by address. Raises LayerError if there is no
    result, or two of an address.

    An answer counts if it has all sent bytes, unchanged. The summary of `ping` counts the other answers too.
    """
    text = "\n".join(line for line in re.split(r"[\r\n]", text) if line.strip())
    pings: dict[str, tuple[int, int]] = {}
    start = 0
    for match in _PING.finditer(text):
        if match["address"] in pings:
            raise LayerError("ping: two results of the same address")
        whole = _whole_answers(text[start : match.start()])
        pings[match["address"]] = int(match["sent"]), min(int(match["received"]), whole)
        start = match.end()
    if not pings:
        raise LayerError(f"ping: no statistics in its output: {text.strip()[:100]!r}")
    return pings


def _whole_answers(text: str) -> int:
    headers = list(_PAYLOAD.finditer(text))
    if not headers:
        return 0
    payload = headers[-1]
    size, text = int(payload[1]) + ICMP_HEADER_BYTES, text[payload.end() :]
    return sum(int(length) == size and not wrong for length, wrong in _ANSWER.findall(text))
