"""Compares hosts and GPUs with the median of their kind."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def median(values: list[int]) -> int:
    """Return the median.

    For an even number of values, return the higher of the two in the middle. Without values, return 0.
    """
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0


def below_median(values: Mapping[T, int], percent: int, kinds: Mapping[T, str]) -> list[tuple[T, int, int]]:
    """Return the keys whose values are below this percentage of the median of their kind, each with value and median.

    The median of two values is the higher one, so that the slow one of two hosts is found.
    """
    found = []
    for kind in sorted({kinds.get(key, "") for key in values}):
        of_kind = {key: value for key, value in values.items() if kinds.get(key, "") == kind}
        usual = median(list(of_kind.values()))
        found += [(key, value, usual) for key, value in of_kind.items() if value * 100 < usual * percent]
    return found
