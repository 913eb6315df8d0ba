"""Reads the clock source of the kernel (`current_clocksource`)."""

from validation.errors import LayerError


def read_clock_source(text: str) -> str:
    """Return the name of the clock source, such as `tsc`. Raises LayerError if the text is not one word."""
    words = text.split()
    if len(words) != 1:
        raise LayerError(f"clock source: not read: {text.strip()[:100]!r}")
    return words[0]
