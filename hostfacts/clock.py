"""Reads the clock source of the kernel (`current_clocksource`)."""

from typing import Final

from hostfacts.errors import UnreadableOutput

CLOCK_SOURCE: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"


def read_clock_source(text: str) -> str:
    """Return the name of the clock source, such as `tsc`. Raises UnreadableOutput if the text is not one word."""
    words = text.split()
    if len(words) != 1:
        raise UnreadableOutput(f"clock source: not read: {text.strip()[:100]!r}")
    return words[0]
