"""Whole numbers in text of users, such as annotations and labels, with a maximum length."""

from typing import Final

MAX_DIGITS: Final = 18
"""Keeps numbers below 2**60, so that no sum reaches the planner's value for unlimited.

It also avoids Python's error for numbers with thousands of digits.
"""


def whole_number(text: str) -> int | None:
    """Return the number in a text of 1 to 18 ASCII digits. Return None for any other text.

    Example: `whole_number("+5")` returns `None`.
    """
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdecimal() else None
