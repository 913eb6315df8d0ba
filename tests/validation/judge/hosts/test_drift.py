"""Tests validation/judge/hosts/drift.py: each limit at its bound, and each way not to fit a baseline."""

import pytest

from validation.judge.hosts.drift import Baseline, DriftLimit, MeasuredGpu, MeasuredHost, judge_drift
from validation.judge.verdict import Verdict

RATE = DriftLimit("rate", "MB/s", "", "", "", minimum_percent=95)
HEAT = DriftLimit("heat", "C", "", "", "", maximum_increase=10)

FACTS, GPU, RATED = (
    {"driver": "580"},
    [MeasuredGpu("GPU-1", {"heat": 60})],
    MeasuredHost("n2", {"rate": 1000}),
)


def hosts(rate: int = 1000, heat: int = 60, driver: str = "580", uuid: str = "GPU-1") -> list[MeasuredHost]:
    """Return a host with a rate and a driver, and a GPU with a temperature."""
    return [MeasuredHost("n1", {"rate": rate}, {"driver": driver}, [MeasuredGpu(uuid, {"heat": heat})])]


def judged(now: list[MeasuredHost], uid: str = "uid-1", its: str = "uid-1") -> tuple[Verdict, str]:
    """Return the only judgement on these hosts beside a baseline of hosts()."""
    baseline = Baseline(
        "run-1",
        "2026-11-01T02:00:00Z",
        "",
        "PASS",
        "",
        "",
        "",
        its,
        [*hosts(), MeasuredHost("n2")],
        [RATE, HEAT],
    )
    (judgement,) = judge_drift(baseline, now, uid)
    return judgement.verdict, judgement.reason


@pytest.mark.parametrize(
    ("now", "verdict", "words"),
    [
        (hosts(rate=950, heat=70), Verdict.PASS, "2 figures compared with the baseline run-1 of 2026-11-01; not m"),
        ([*hosts(), MeasuredHost("n3")], Verdict.INCONCLUSIVE, "n3 is not in it"),
        ([MeasuredHost("n1", {"rate": 1000}, FACTS)], Verdict.INCONCLUSIVE, "n1 GPU-1 is not there any more"),
        ([MeasuredHost("n1", {}, FACTS, GPU), RATED], Verdict.INCONCLUSIVE, "n1: rate was 1000, is not measured"),
        ([MeasuredHost("n1", {}, FACTS, [MeasuredGpu("GPU-1")])], Verdict.INCONCLUSIVE, "no figure was compared"),
        (hosts(rate=949), Verdict.FAIL, "n1: rate is 949 MB/s, was 1000, and may be at least 95 %"),
        (hosts(heat=71), Verdict.FAIL, "n1 GPU-1: heat is 71 C, was 60, and may be at most 10 C more"),
        (hosts(driver="581"), Verdict.INCONCLUSIVE, "n1: driver was 580, is 581"),
        (hosts(uuid="GPU-2"), Verdict.INCONCLUSIVE, "is of another cluster"),
    ],
)  # fmt: skip
def test_a_host_beside_its_baseline(now: list[MeasuredHost], verdict: Verdict, words: str) -> None:
    assert judged(now)[0] == verdict
    assert words in judged(now)[1]


def test_another_uid_of_kube_system_is_another_cluster_and_no_uid_is_none() -> None:
    verdict, reason = judged(hosts(), "uid-2")
    assert (verdict, "kube-system is uid-2 here, uid-1 there" in reason) == (Verdict.INCONCLUSIVE, True)
    assert judged(hosts(), "")[0] == judged(hosts(), "uid-2", its="")[0] == Verdict.PASS
