"""Compares hosts and GPUs with the median of their kind."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def median(values: list[int]) -> int:
    """Return the middle value, of an even number the higher of the two; 0 for none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0


def below_median(values: Mapping[T, int], percent: int, kinds: Mapping[T, str]) -> list[tuple[T, int, int]]:
    """Return those below this share of the median of their kind, with their value and the median.

    Of two values the median is the higher: one of two hosts that is slow must be seen.
    """
    found = []
    for kind in sorted({kinds.get(key, "") for key in values}):
        of_kind = {key: value for key, value in values.items() if kinds.get(key, "") == kind}
        usual = median(list(of_kind.values()))
        found += [(key, value, usual) for key, value in of_kind.items() if value * 100 < usual * percent]
    return found
