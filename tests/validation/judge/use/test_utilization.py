"""Utilization by its definition: the judge finds the simulated duty again, and nothing passes with missing samples."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.judge.events import GpuSampled, SamplesSeen
from validation.judge.use.utilization import (
    WINDOW_MS,
    GpuUse,
    Standard,
    Utilization,
    UtilizationSample,
    held_by_kubelets,
    judge_utilization,
    measure_utilization,
    samples_of,
)
from validation.judge.verdict import Verdict

NODES = ("dgx1-1", "dgx1-2")
GPUS = [(node, gpu) for node in NODES for gpu in range(8)]
Samples = dict[tuple[str, int], list[tuple[int, int]]]


def steady(percent: int, every_ms: int = 1000, until_ms: int = WINDOW_MS) -> list[tuple[int, int]]:
    return [(t_ms, percent) for t_ms in range(0, until_ms + 1, every_ms)]


def measured(samples: Samples, held: list[tuple[str, int]] = GPUS, until_ms: int = WINDOW_MS) -> Utilization:
    return measure_utilization(
        [
            UtilizationSample(t_ms, node, gpu, percent)
            for (node, gpu), values in samples.items()
            for t_ms, percent in values
        ],
        {gpu: [(0, until_ms, f"team-a/heavy-{gpu[0][-1]}-{gpu[1]}")] for gpu in held},
        from_ms=0,
        until_ms=until_ms,
        gpus_total=16,
    )


def verdict(samples: Samples, held: list[tuple[str, int]] = GPUS) -> tuple[Verdict, str]:
    judgement = judge_utilization(measured(samples, held), Standard())
    return judgement.verdict, judgement.reason


def full(percent: int = 97, **others: list[tuple[int, int]]) -> Samples:
    """Return samples of all sixteen GPUs at `percent`; `g3` replaces those of the fourth GPU."""
    samples = {gpu: steady(percent) for gpu in GPUS}
    return samples | {GPUS[int(name[1:])]: values for name, values in others.items()}


def test_the_papers_figure_passes_and_is_in_the_reason() -> None:
    assert verdict(full()) == (Verdict.PASS, "97.00 %, lowest dgx1-1/0 at 97.00 %")


def test_94_percent_fail_and_95_pass() -> None:
    assert verdict(full(94))[0] == Verdict.FAIL
    assert verdict(full(95))[0] == Verdict.PASS


def test_one_idle_gpu_that_is_held_fails_for_any_mean() -> None:
    outcome, reason = verdict(full(100, g5=steady(0)))
    assert outcome == Verdict.FAIL
    assert reason == "held, and idle for 60.0 s or more: dgx1-1/5"
    minute = [(t_ms, 0 if 200_000 < t_ms <= 260_000 else 100) for t_ms, _ in steady(100)]
    assert "dgx1-1/5" in verdict(full(100, g5=minute))[1]
    shorter = [(t_ms, 0 if 200_000 < t_ms <= 259_000 else 100) for t_ms, _ in steady(100)]
    assert verdict(full(100, g5=shorter))[0] == Verdict.PASS


def test_one_gpu_below_90_percent_fails_although_the_mean_is_enough() -> None:
    assert verdict(full(100, g9=steady(90)))[0] == Verdict.PASS
    outcome, reason = verdict(full(100, g9=steady(89)))
    assert (outcome, "dgx1-2/1 at 89.00 %" in reason) == (Verdict.FAIL, True)


@pytest.mark.parametrize(("gap_ms", "outcome"), [(10_000, Verdict.PASS), (11_000, Verdict.INCONCLUSIVE)])
def test_a_gap_of_more_than_ten_seconds_is_inconclusive(gap_ms: int, outcome: Verdict) -> None:
    holes = [(t_ms, percent) for t_ms, percent in steady(97) if not 300_000 < t_ms < 300_000 + gap_ms]
    assert verdict(full(97, g2=holes))[0] == outcome


@pytest.mark.parametrize("part", [slice(12, None), slice(None, -12)])
def test_silence_at_the_beginning_or_the_end_is_a_gap(part: slice) -> None:
    assert verdict(full(97, g2=steady(97)[part]))[0] == Verdict.INCONCLUSIVE


def test_a_gap_hides_no_idle_gpu() -> None:
    """Known samples decide: a GPU that was idle for a minute fails, even if other samples are missing."""
    assert verdict(full(97, g2=steady(0)[:80]))[0] == Verdict.FAIL


def test_a_gpu_without_samples_or_no_gpu_at_all_is_an_error() -> None:
    assert verdict(full(97, g2=[])) == (Verdict.ERROR, "no sample of dgx1-1/2")
    assert verdict(full(97), [])[0] == Verdict.ERROR


def test_fifteen_of_sixteen_are_not_full() -> None:
    assert verdict(full(97), GPUS[1:]) == (Verdict.FAIL, "15 of 16 GPUs were held")
    half = measure_utilization(
        [UtilizationSample(t_ms, *GPUS[0], percent) for t_ms, percent in steady(97)],
        {GPUS[0]: [(300_000, WINDOW_MS, "a/b")]},
        from_ms=0,
        until_ms=WINDOW_MS,
        gpus_total=1,
    )
    assert judge_utilization(half, Standard()).reason == "not held all the time: dgx1-1/0"
    assert judge_utilization(half, Standard(all_held=False)).verdict == Verdict.PASS


def test_a_window_that_is_too_short_proves_nothing() -> None:
    use = measured({gpu: steady(97, until_ms=599_000) for gpu in GPUS}, until_ms=599_000)
    judgement = judge_utilization(use, Standard())
    assert (judgement.verdict, judgement.reason) == (Verdict.INCONCLUSIVE, "watched for 599.0 s of 600.0 s")


def test_more_than_all_of_a_gpu_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"index": 0, "percent": 101}', type=GpuSampled)


def test_samples_count_by_the_time_since_the_one_before() -> None:
    """Ten samples in one second count as much as one sample for that second."""
    dense = [(t_ms, 100) for t_ms in range(100, 300_001, 100)]
    sparse = [(t_ms, 50) for t_ms in range(301_000, WINDOW_MS + 1, 1000)]
    use = measured({GPUS[0]: [(0, 100), *dense, *sparse]}, GPUS[:1])
    assert use.centi_percent == 7500


def test_the_mean_is_over_gpus_and_the_figures_of_nodes_and_pods_beside_it() -> None:
    use = measured({GPUS[0]: steady(100), GPUS[8]: steady(80), GPUS[9]: steady(60)}, [GPUS[0], *GPUS[8:10]])
    assert use.centi_percent == 8000
    assert use.nodes == {"dgx1-1": 10_000, "dgx1-2": 7000}
    assert use.pods["team-a/heavy-2-1"] == 6000
    assert (use.median, use.low) == (80, 60)


def duty_samples(changes: list[tuple[int, int]], every_ms: int, offset_ms: int) -> list[tuple[int, int]]:
    """Return samples of a changing duty as NVML reports them: each is the mean over the second before it."""
    duty = [percent for length_s, percent in changes for _ in range(length_s * 10)]
    tenth = [0, *duty]
    values = []
    for t_ms in range(offset_ms, len(duty) * 100 + 1, every_ms):
        before = tenth[max(1, t_ms // 100 - 9) : t_ms // 100 + 1] or [duty[0]]
        values.append((t_ms, round(sum(before) / len(before))))
    return values


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(20, 120), st.integers(0, 100)), min_size=1, max_size=5),
    st.sampled_from([250, 500, 1000, 2000]),
    st.integers(0, 999),
)
def test_an_injected_duty_is_found_within_one_point(
    changes: list[tuple[int, int]], every_ms: int, offset_ms: int
) -> None:
    changes = changes * (1 + 600 // sum(length for length, _ in changes))
    total_s = sum(length for length, _ in changes)
    # Limits the number of changes, because each can be reported up to one second late.
    changes = [(total_s // len(changes[:5]), percent) for _, percent in changes[:5]]
    until_ms = sum(length for length, _ in changes) * 1000
    truth = sum(length * percent for length, percent in changes) / (until_ms / 1000)
    use = measured({GPUS[0]: duty_samples(changes, every_ms, offset_ms)}, GPUS[:1], until_ms)
    assert use.centi_percent is not None
    assert abs(use.centi_percent - truth * 100) <= 100


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 100)), max_size=60),
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 60_000)), min_size=1, max_size=4),
)
def test_known_and_unknown_time_are_all_of_the_time_that_a_gpu_was_held(
    values: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    held = {GPUS[0]: [(min(span), max(span) + 1, "a/b") for span in spans]}
    samples = [UtilizationSample(t_ms, *GPUS[0], percent) for t_ms, percent in values]
    use = measure_utilization(samples, held, from_ms=0, until_ms=60_000, gpus_total=1)
    shuffled = measure_utilization(samples[::-1], held, from_ms=0, until_ms=60_000, gpus_total=1)
    moments = {t for start, end, _ in held[GPUS[0]] for t in range(start, min(end, 60_000))}
    if not moments:
        assert use.gpus == []
        return
    one: GpuUse = use.gpus[0]
    assert one.held_ms == len(moments)
    assert 0 <= one.known_ms <= one.held_ms
    assert one.max_gap_ms <= one.held_ms - one.known_ms
    assert one.max_idle_ms <= one.known_ms
    if one.centi_percent is not None:
        assert 0 <= one.centi_percent <= 10_000
    if len({t_ms for t_ms, _ in values}) == len(values):
        assert shuffled == use


def page(t_ms: int, *holders: tuple[str, ...], node: str = "n1", problem: str = "") -> SamplesSeen:
    gpus = tuple(GpuSampled(index, 97, pods) for index, pods in enumerate(holders))
    return SamplesSeen(t_ms, node, gpus, problem)


def test_the_kubelet_reports_the_holders_of_a_gpu_from_page_to_page() -> None:
    events = [
        page(1000, ("p/one",), ("p/one", "p/half")),
        page(2000, ("p/one",), ("p/half",)),
        page(3000, problem="503"),
        page(20_000, (), ("p/half",)),
        page(21_000, ("p/two",), ("p/half",)),
        page(5000, ("p/other",), node="n2"),
    ]
    assert held_by_kubelets(events, 500, 30_000) == {
        ("n1", 0): [(500, 2000, "p/one"), (21_000, 30_000, "p/two")],
        ("n1", 1): [(500, 30_000, "p/half"), (500, 1000, "p/one")],
        ("n2", 0): [(500, 30_000, "p/other")],
    }


def test_a_gpu_of_which_the_driver_says_nothing_has_no_sample() -> None:
    event = SamplesSeen(1000, "n1", (GpuSampled(0, 5), GpuSampled(1, None, ("p/one",))))
    assert samples_of([event, page(2000, problem="503")]) == [UtilizationSample(1000, "n1", 0, 5)]


def test_less_than_a_whole_percent_is_less() -> None:
    """94.999 % is not rounded up to 95 %."""
    just_below = [(t_ms, 94 if t_ms == 1000 else 95) for t_ms, _ in steady(95)]
    outcome, reason = verdict(dict.fromkeys(GPUS, just_below))
    assert (outcome, reason.startswith("94.99 %")) == (Verdict.FAIL, True)
