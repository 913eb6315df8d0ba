"""Training rates: the end of the warm-up, steadiness, and an interval that contains the true rate as often as it
claims.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.judge.training.rates import GROUPS, Rate, measure

SECOND = 1_000_000_000


def rate_of(durations_ns: list[int]) -> Rate:
    rate = measure([100] * len(durations_ns), durations_ns)
    assert rate is not None
    return rate


def test_a_level_rate_is_exact_and_has_no_warm_up() -> None:
    assert rate_of([SECOND] * 20) == Rate(100.0, 100.0, 100.0, 20, 0, 0.0, 0.0)


def test_the_warm_up_is_left_out_and_nothing_else() -> None:
    rate = rate_of([5 * SECOND] * 3 + [SECOND] * 27)
    assert rate.is_steady
    # 27 windows cannot be divided into ten groups
    assert (rate.mean, rate.warm_up, rate.windows) == (100.0, 10, 20)


def test_more_than_half_is_never_warm_up() -> None:
    rate = rate_of([5 * SECOND] * 21 + [SECOND] * 19)
    assert not rate.is_steady
    assert rate.warm_up == 20


def test_a_rate_that_falls_and_falls_is_not_steady() -> None:
    rate = rate_of([SECOND + number * SECOND // 100 for number in range(40)])
    assert not rate.is_steady
    assert rate.drift_permille > 20


def test_a_jump_in_the_middle_of_the_measurement_is_not_steady() -> None:
    assert not rate_of([SECOND] * 35 + [SECOND * 112 // 100] * 5).is_steady


@pytest.mark.parametrize(
    ("amounts", "durations"),
    [
        ([100] * 19, [SECOND] * 19),
        ([100] * 20, [SECOND] * 21),
        ([0] * 20, [SECOND] * 20),
        ([1] * 20, [0] * 20),
        ([], []),
    ],
)
def test_too_little_is_no_rate(amounts: list[int], durations: list[int]) -> None:
    assert measure(amounts, durations) is None


def test_the_interval_of_95_percent_holds_the_truth_in_about_95_of_100_runs() -> None:
    source = random.Random(7)  # noqa: S311
    held = 0
    for _ in range(1000):
        rate = rate_of([round(source.gauss(SECOND, SECOND / 50)) for _ in range(40)])
        held += rate.low <= 100 <= rate.high
    assert 930 <= held <= 970


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(SECOND // 2, 2 * SECOND), min_size=2 * GROUPS, max_size=60))
def test_the_mean_is_inside_its_interval_and_between_the_fastest_and_the_slowest(
    durations: list[int],
) -> None:
    rate = rate_of(durations)
    assert rate.low <= rate.mean * 1.000001
    assert rate.mean <= rate.high * 1.000001
    used = durations[rate.warm_up :]
    assert rate.windows == len(used) >= len(durations) // 2 - GROUPS
    assert 100 * SECOND / max(used) <= rate.mean * 1.000001
    assert rate.mean <= 100 * SECOND / min(used) * 1.000001


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(SECOND // 2, 2 * SECOND), min_size=20, max_size=40), st.integers(2, 9))
def test_a_machine_that_is_faster_throughout_has_a_rate_as_much_higher(
    durations: list[int], factor: int
) -> None:
    slow, fast = rate_of([factor * duration for duration in durations]), rate_of(durations)
    assert slow.mean * factor == pytest.approx(fast.mean)
    assert slow.warm_up == fast.warm_up
