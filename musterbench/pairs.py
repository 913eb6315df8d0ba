"""What pairs of measurements say: the median of their ratios, and an interval that rests on no distribution of them."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_PAIRS: Final = 6
"""Of fewer, even the smallest and the largest ratio enclose the median in less than 95 of 100 cases."""
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

    The interval is that of the sign test, from the k-th smallest ratio to the k-th largest: were the true median
    outside, fewer than k ratios would be beyond it, as if of so many coins fewer than k had shown heads. `k` is the
    largest for which that happens in at most 5 of 100 cases. Raises ValueError if there are fewer than LEAST_PAIRS.
    """
    count = len(pairs)
    if count < LEAST_PAIRS:
        raise ValueError(f"{count} pairs are fewer than {LEAST_PAIRS}")
    ratios = sorted(measured / beside for measured, beside in pairs)
    beyond = _ratios_beyond(count)
    return Ratios(count, statistics.median(ratios), ratios[beyond], ratios[count - 1 - beyond])


def _ratios_beyond(count: int) -> int:
    """How many of the smallest ratios, and of the largest, are outside of the interval."""
    beyond, cases = 0, 1
    while 2 * (cases + math.comb(count, beyond + 1)) <= (1 - _PROBABILITY) * 2**count:
        beyond += 1
        cases += math.comb(count, beyond)
    return beyond
