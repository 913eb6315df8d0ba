"""What pairs of measurements prove: the median, its interval, whether a bound is kept; and so what metrics cost."""

from __future__ import annotations

import random
import statistics

import pytest

from musterbench.metrics_cost import Pair, Round, pair_result, whole_result
from musterbench.metrics_directly import ALLOWED_PART, counting_us, direct_result
from musterbench.pairs import (
    EXCLUDED,
    LEAST_PAIRS,
    NOT_DECIDABLE,
    SHOWN,
    Ratios,
    critical_value,
    ratios_of,
)

TABLE = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 12: 13, 15: 25, 20: 52, 25: 89, 30: 137, 40: 264, 50: 434}
"""Critical values of the two-sided signed-rank test at 5 %, by the number of differences, as textbooks print them."""


def ratios(values: list[float]) -> Ratios:
    return ratios_of([(value, 1.0) for value in values])


def one_round(rate: float, busy_rate: float) -> Round:
    return Round(rate, busy_rate, seconds=2.0, peak_rss_bytes=100, readings=2)


def pairs_of(part: float, busy_part: float, count: int = 40) -> list[Pair]:
    """Pairs whose second round is a fifth slower by the clock than the first, whoever has it."""
    pairs = []
    for number in range(count):
        first, second = (400.0, 320.0) if number % 2 else (320.0, 400.0)
        scatter = 1 + (number // 2 % 5 - 2) / 1000
        without = one_round(first, 1000.0)
        pairs.append(Pair(without, one_round(second * part * scatter, 1000 * busy_part * scatter)))
    return pairs


@pytest.mark.parametrize(("count", "value"), TABLE.items())
def test_critical_values_are_those_of_the_tables(count: int, value: int) -> None:
    assert critical_value(count) == value


def test_of_six_pairs_the_interval_goes_from_the_smallest_ratio_to_the_largest() -> None:
    result = ratios([1.2, 0.9, 1.0, 1.1, 0.8, 1.3])
    assert (result.pairs, result.median) == (6, 1.05)
    assert [result.low, result.high] == pytest.approx([0.8, 1.3])


def test_of_eight_pairs_the_interval_leaves_out_three_means_on_either_side() -> None:
    result = ratios([2.0**number for number in (7, 3, 1, 0, 2, 6, 4, 5)])
    # the smallest means are those of 0 and 0, 0 and 1, then 0 and 2 or 1 and 1
    assert [result.low, result.high] == pytest.approx([2.0, 64.0])
    assert result.median == statistics.median([2.0**3, 2.0**4])


def test_the_interval_does_not_depend_on_which_of_a_pair_is_called_the_first() -> None:
    dice = random.Random(1)  # noqa: S311
    pairs = [(dice.uniform(1, 2), dice.uniform(1, 2)) for _ in range(20)]
    result, inverse = ratios_of(pairs), ratios_of([(beside, measured) for measured, beside in pairs])
    assert result.low == pytest.approx(1 / inverse.high)
    assert result.high == pytest.approx(1 / inverse.low)


def test_the_interval_has_the_true_median_in_95_of_100_measurements() -> None:
    dice = random.Random(2)  # noqa: S311
    hits = 0
    for _ in range(1000):
        result = ratios([dice.lognormvariate(0, 0.2) for _ in range(20)])
        hits += result.low <= 1 <= result.high
    assert 930 <= hits <= 970


def test_a_few_wild_rounds_move_neither_the_median_nor_the_interval_far() -> None:
    steady = [1 + number / 10_000 for number in range(-20, 20)]
    wild = ratios([*steady, 9.0, 9.0, 0.1])
    assert abs(wild.median - 1) < 0.001
    assert 0.998 < wild.low < wild.high < 1.002


def test_the_ratio_is_the_first_of_a_pair_by_the_second() -> None:
    assert ratios_of([(1.0, 2.0)] * LEAST_PAIRS) == Ratios(LEAST_PAIRS, 0.5, 0.5, 0.5)


def test_too_few_pairs_have_no_interval() -> None:
    with pytest.raises(ValueError, match="5 pairs are fewer than 6"):
        ratios([1.0] * (LEAST_PAIRS - 1))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.97, 1.1, SHOWN),
        (0.99, 1.0, SHOWN),
        (0.9699, 1.1, NOT_DECIDABLE),
        (0.5, 0.97, NOT_DECIDABLE),
        (0.5, 0.9699, EXCLUDED),
    ],
)
def test_a_bound_is_shown_excluded_or_neither(low: float, high: float, verdict: str) -> None:
    assert Ratios(40, (low + high) / 2, low, high).at_least(0.97) == verdict


@pytest.mark.parametrize(
    ("part", "busy_part", "by_clock", "by_processor", "problem"),
    [
        (1.0, 1.0, SHOWN, SHOWN, None),
        (0.97, 0.97, NOT_DECIDABLE, NOT_DECIDABLE, None),
        (1.0, 0.95, SHOWN, EXCLUDED, "with metrics more than 3 % fewer: binds_per_busy_second"),
        (0.7, 0.98, EXCLUDED, SHOWN, "with metrics more than 3 % fewer: binds_per_second"),
        (1.3, 1.3, SHOWN, SHOWN, None),
    ],
)
def test_the_result_of_all_pairs_says_what_they_prove(
    part: float, busy_part: float, by_clock: str, by_processor: str, problem: str | None
) -> None:
    result = whole_result(pairs_of(part, busy_part), nodes=4, pods=20)
    answer = result.as_json()
    assert answer["binds_per_second_within_3_percent"] == by_clock
    assert answer["binds_per_busy_second_within_3_percent"] == by_processor
    assert answer.get("problem") == problem
    assert answer["pairs"] == 40
    assert answer["allowed_part"] == ALLOWED_PART == 0.97
    assert answer["binds_per_second_part_low"] <= answer["binds_per_second_part_median"]
    assert answer["binds_per_busy_second_part_median"] == pytest.approx(busy_part, abs=0.002)
    assert f"binds_per_second_within_3_percent {by_clock}" in result.line()


def test_the_result_of_a_pair_has_both_figures_of_both_rounds() -> None:
    pair = Pair(one_round(400.0, 1000.0), one_round(390.0, 990.0))
    assert pair_result(pair, 3, nodes=4, pods=20).as_json() == {
        "case": "metrics: pair 3",
        "nodes": 4,
        "gpus": 32,
        "jobs": 40,
        "seconds": 4.0,
        "peak_rss_bytes": 100,
        "binds_per_second_without": 400.0,
        "binds_per_second_with": 390.0,
        "binds_per_busy_second_without": 1000.0,
        "binds_per_busy_second_with": 990.0,
        "readings": 2,
    }


@pytest.mark.parametrize(
    ("counted_us", "read_ms", "verdict"),
    [(10.0, 150.0, SHOWN), (31.0, 1.0, EXCLUDED), (1.0, 450.0, EXCLUDED)],
)
def test_what_metrics_take_by_themselves_is_part_of_a_binding_and_of_a_processor(
    counted_us: float, read_ms: float, verdict: str
) -> None:
    result = direct_result(
        4,
        20,
        counted_us=counted_us,
        read_ms=read_ms,
        binds_per_busy_second=[900.0, 1000.0, 1100.0],
        rss_bytes=1,
    )
    assert result.figures["counting_part"] == pytest.approx(counted_us / 1000)
    assert result.figures["reading_part_of_a_processor"] == pytest.approx(read_ms / 15_000)
    assert result.verdicts == {"within_3_percent_by_themselves": verdict}
    assert (result.problem is None) == (verdict == SHOWN)


def test_all_that_is_counted_for_a_binding_is_timed() -> None:
    assert 0 < counting_us(4) < 1000
