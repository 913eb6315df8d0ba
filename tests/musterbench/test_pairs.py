"""What pairs of measurements prove: the median, its interval, whether a bound is kept; and so what metrics cost."""

from __future__ import annotations

import random
import statistics

import pytest

from musterbench.metrics_cost import ALLOWED_PART, Pair, Round, pair_result, whole_result
from musterbench.pairs import EXCLUDED, LEAST_PAIRS, NOT_DECIDABLE, SHOWN, Ratios, ratios_of

INTERVALS_OF_TABLES = {6: 1, 8: 1, 9: 2, 10: 2, 15: 4, 20: 6, 25: 8, 40: 14, 50: 18, 100: 40}
"""How many pairs, and the rank of the ratio that begins the interval: one more than the critical value of the two-sided
sign test at 5 %, as textbooks print it."""


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


@pytest.mark.parametrize(("count", "rank"), INTERVALS_OF_TABLES.items())
def test_the_interval_begins_and_ends_where_the_tables_of_the_sign_test_say(count: int, rank: int) -> None:
    values = [float(number) for number in range(1, count + 1)]
    result = ratios(random.Random(1).sample(values, count))  # noqa: S311
    assert (result.low, result.high) == (rank, count + 1 - rank)
    assert result.median == statistics.median(values)
    assert result.pairs == count


def test_the_interval_has_the_true_median_in_95_of_100_measurements() -> None:
    dice = random.Random(2)  # noqa: S311
    hits = 0
    for _ in range(2000):
        result = ratios([dice.lognormvariate(0, 0.2) for _ in range(40)])
        hits += result.low <= 1 <= result.high
    assert 0.945 < hits / 2000 < 0.985  # exactly 96.2 %, as ranks are whole numbers


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
        (1.0, 1.0, NOT_DECIDABLE, SHOWN, None),
        (1.0, 0.95, NOT_DECIDABLE, EXCLUDED, "with metrics more than 3 % fewer: binds_per_busy_second"),
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
