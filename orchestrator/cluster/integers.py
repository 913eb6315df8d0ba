"""Whole numbers in text that anybody may write, such as annotations and labels: none may be too long to use."""

from typing import Final

MAX_DIGITS: Final = 18
"""Below 2**60: no sum of such numbers reaches what the planner takes for unlimited, and Python converts a number of
some thousand digits only with an error."""


def whole_number(text: str) -> int | None:
    """Return the number that 1 to 18 ASCII digits write; None for every other text."""
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdecimal() else None
