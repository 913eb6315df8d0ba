"""Computes a mean rate with its confidence interval, after it has removed the warm-up and proved the steady state."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

GROUPS: Final = 10
"""Number of groups of consecutive windows.

The interval is computed from the means of the groups. Neighbouring windows are correlated, but the means of groups
hardly are.
"""
ROUNDS: Final = 5
"""Number of equal parts of the measurement whose rates are compared to prove the steady state."""
SPREAD_PERMILLE: Final = 50
DRIFT_PERMILLE: Final = 20
STUDENT_95: Final = 2.2621571628
"""Student's t, two-sided 95 %, of GROUPS - 1 degrees of freedom."""


class Rate(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A mean rate and its 95 % interval, of `windows` windows.

    The first `warm_up` windows of the measurement are not used.

    `spread_permille` is the distance between the fastest and the slowest round. `drift_permille` is the change from the
    first to the last round on a line through them. Both are relative to the mean. If both are within SPREAD_PERMILLE
    and DRIFT_PERMILLE, the rate is steady.
    """

    mean: float
    low: float
    high: float
    windows: int
    warm_up: int
    spread_permille: float
    drift_permille: float

    @property
    def is_steady(self) -> bool:
        """Whether spread and drift are within their bounds."""
        return self.spread_permille <= SPREAD_PERMILLE and self.drift_permille <= DRIFT_PERMILLE


def measure(amounts: Sequence[int], durations_ns: Sequence[int]) -> Rate | None:
    """Return the rate over windows with `amounts` in `durations_ns`; None for fewer windows than two times GROUPS.

    The warm-up is the shortest beginning after which the rest is steady, at most half of the windows. If no rest is
    steady, the rate of the second half is returned; its `is_steady` is False.
    """
    total = len(durations_ns)
    if total != len(amounts) or total < 2 * GROUPS or min(amounts) <= 0 or min(durations_ns) <= 0:
        return None
    rates = (_after(warm_up, amounts, durations_ns) for warm_up in range(total // 2 + 1))
    last = None
    for rate in rates:
        if rate.is_steady:
            return rate
        last = rate
    return last


def _after(warm_up: int, amounts: Sequence[int], durations_ns: Sequence[int]) -> Rate:
    """Return the rate of the windows after the warm-up. Windows that do not fill the groups count as warm-up, too."""
    size = (len(amounts) - warm_up) // GROUPS
    first = len(amounts) - size * GROUPS
    starts = range(first, len(amounts), size)
    costs = [sum(durations_ns[start : start + size]) / sum(amounts[start : start + size]) for start in starts]
    mean = math.fsum(costs) / GROUPS
    deviation = math.sqrt(math.fsum((cost - mean) ** 2 for cost in costs) / (GROUPS - 1))
    margin = STUDENT_95 * deviation / math.sqrt(GROUPS)
    per_round = GROUPS // ROUNDS
    rounds = [math.fsum(costs[i : i + per_round]) / per_round for i in range(0, GROUPS, per_round)]
    return Rate(
        mean=1e9 / mean,
        low=1e9 / (mean + margin),
        high=1e9 / (mean - margin) if margin < mean else math.inf,
        windows=size * GROUPS,
        warm_up=first,
        spread_permille=1000 * (max(rounds) - min(rounds)) / mean,
        drift_permille=1000 * abs(_slope(rounds)) * (ROUNDS - 1) / mean,
    )


def _slope(values: Sequence[float]) -> float:
    """Return the slope of the least squares line through the values, which have a distance of one."""
    middle = (len(values) - 1) / 2
    return math.fsum((x - middle) * value for x, value in enumerate(values)) / math.fsum(
        (x - middle) ** 2 for x in range(len(values))
    )
