"""What pairs of measurements say: the median of their ratios, and an interval in which the true one is."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from typing import Final

LEAST_PAIRS: Final = 6
"""Of fewer, even the smallest and the largest ratio enclose the true one in less than 95 of 100 cases."""
_PROBABILITY: Final = 0.95

SHOWN: Final = "shown"
EXCLUDED: Final = "excluded"
NOT_DECIDABLE: Final = "not decidable"


@dataclass(frozen=True, slots=True)
class Ratios:
    """The median of the ratios of pairs; in 95 of 100 such measurements the true one is between `low` and `high`."""

    pairs: int
    median: float
    low: float
    high: float

    def at_least(self, part: float) -> str:
        """Whether the true ratio is at least this: SHOWN, EXCLUDED, or NOT_DECIDABLE as long as it may be either."""
        if self.low >= part:
            return SHOWN
        return EXCLUDED if self.high < part else NOT_DECIDABLE


def ratios_of(pairs: Sequence[tuple[float, float]]) -> Ratios:
    """Of pairs of (measured, measured beside it) the ratios, the first by the second.

    The interval is that of Wilcoxon's signed-rank test: of the geometric means of every two ratios, and of each with
    itself, the k-th smallest to the k-th largest, `k` as large as 95 of 100 cases allow. It assumes that the logarithms
    of the ratios scatter alike to both sides, as they do where either measurement of a pair may be disturbed, and
    nothing of how far. Raises ValueError if there are fewer than LEAST_PAIRS.
    """
    if len(pairs) < LEAST_PAIRS:
        raise ValueError(f"{len(pairs)} pairs are fewer than {LEAST_PAIRS}")
    ratios = [measured / beside for measured, beside in pairs]
    means = sorted(math.sqrt(one * other) for one, other in combinations_with_replacement(ratios, 2))
    beyond = critical_value(len(ratios))
    return Ratios(len(ratios), statistics.median(ratios), means[beyond], means[-1 - beyond])


@cache
def critical_value(count: int) -> int:
    """The largest sum of ranks, of so many differences, that is significant at 5 % in the two-sided signed-rank test.

    Where each rank counts or not by the toss of a coin, so small a sum comes out in at most 25 of 1,000 cases.
    """
    ways = [1] + [0] * (count * (count + 1) // 2)
    for rank in range(1, count + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    allowed = (1 - _PROBABILITY) / 2 * 2**count
    cases = 0
    for total, number in enumerate(ways):
        cases += number
        if cases > allowed:
            return total - 1
    raise AssertionError("all sums together are all cases")
