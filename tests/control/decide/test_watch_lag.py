"""The delay of the watch after the answers."""

from orchestrator.control.decide.watch_lag import MAX_SAMPLES, Lags, WatchLag
from tests.cluster.waiting import ManualClock


def test_the_lag_is_from_the_answer_to_the_event_and_nothing_if_the_event_was_first() -> None:
    clock = ManualClock()
    lag = WatchLag(clock)
    assert lag.lags() is None
    lag.answered("slow")
    clock.now += 0.5
    lag.seen("slow")
    lag.seen("fast")
    clock.now += 5
    lag.answered("fast")
    lag.answered("never-seen")
    assert lag.lags() == Lags(count=2, p50_ms=500.0, p99_ms=500.0, max_ms=500.0)


def test_of_many_the_newest_count() -> None:
    clock = ManualClock()
    lag = WatchLag(clock)
    for number in range(2 * MAX_SAMPLES):
        lag.answered(str(number))
        clock.now += 1 if number < MAX_SAMPLES else 2
        lag.seen(str(number))
    assert lag.lags() == Lags(MAX_SAMPLES, 2000.0, 2000.0, 2000.0)
