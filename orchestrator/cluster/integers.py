"""Whole numbers in text of users, such as annotations and labels, with a maximum length."""

from typing import Final

MAX_DIGITS: Final = 18
"""Below 2**60: no sum of such numbers reaches the planner's value for unlimited, and Python refuses to convert
numbers of some thousand digits.
"""


def whole_number(text: str) -> int | None:
    """Return the number that 1 to 18 ASCII digits write; None for every other text.

    Example: `whole_number("+5")` returns `None`.
    """
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdecimal() else None
