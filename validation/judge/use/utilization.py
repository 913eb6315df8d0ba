"""Measures and judges the utilization of GPUs while jobs held them. The report prints this definition.

NVML reports the percentage of the last sample period in which a kernel ran. It does not report how much of the GPU the
kernel used.

The utilization of a GPU is the mean of these samples over the time in a window for which the GPU was held. Each sample
is weighted with the time since the previous sample. The utilization of several GPUs is the mean of the utilizations of
the held GPUs.

If two samples are further apart than MAX_GAP_MS, the time between them is unknown, and no sample counts for it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from validation.judge.check_verdict import Judgement
from validation.judge.events import Event, SamplesSeen
from validation.judge.units import seconds
from validation.judge.verdict import Verdict

WINDOW_MS: Final = 600_000
MAX_GAP_MS: Final = 10_000
IDLE_MS: Final = 60_000
"""A held GPU on which no kernel ran for this time is idle."""
LEAST_PERCENT: Final = 95
"""Required mean utilization: the paper's 97 %, minus two points."""
LEAST_PERCENT_OF_A_GPU: Final = 90

Gpu = tuple[str, int]
Span = tuple[int, int]


class UtilizationSample(NamedTuple):
    """A sample of NVML of one GPU: the utilization in the time just before `t_ms`."""

    t_ms: int
    node: str
    gpu: int
    percent: int


class GpuUse(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One GPU in the window. Samples exist for `known_ms` of `held_ms`.

    `centi_percent`, in hundredths of a percent and rounded down, is None without a sample. `pods` are the pods to which
    the kubelet gave the GPU, as `namespace/name`.
    """

    node: str
    gpu: int
    pods: list[str]
    held_ms: int
    known_ms: int
    samples: int
    centi_percent: int | None
    max_gap_ms: int
    max_idle_ms: int

    @property
    def name(self) -> str:
        """The GPU as people write it: `node/index`."""
        return f"{self.node}/{self.gpu}"


class Utilization(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The utilization in a window of all held GPUs, of nodes and of pods, in hundredths of a percent, rounded down.

    `median` and `low` (the 5 % quantile) are over the weighted samples of all held GPUs, in percent.
    """

    from_ms: int
    until_ms: int
    gpus_total: int
    centi_percent: int | None
    median: int | None
    low: int | None
    gpus: list[GpuUse]
    nodes: dict[str, int]
    pods: dict[str, int]


class Standard(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The required utilization.

    With `all_held`, every GPU of the cluster must be held for the whole window. The window begins `warm_up_ms` after
    the start of the jobs.
    """

    window_ms: int = WINDOW_MS
    warm_up_ms: int = 0
    minimum_percent: int = LEAST_PERCENT
    minimum_percent_of_a_gpu: int = LEAST_PERCENT_OF_A_GPU
    all_held: bool = True


@dataclass(slots=True)
class _Covered:
    """The weighted samples of one GPU."""

    weights: dict[int, int] = field(default_factory=dict)
    gaps: list[int] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    samples: int = 0

    @property
    def known_ms(self) -> int:
        return sum(self.weights.values())

    @property
    def percent(self) -> Fraction | None:
        return _mean(self.weights)


def samples_of(events: Iterable[Event]) -> list[UtilizationSample]:
    """Return the samples of the agents' pages; a GPU without a value of the driver has none."""
    return [
        UtilizationSample(event.t_ms, event.node, gpu.index, gpu.percent)
        for event in events
        if isinstance(event, SamplesSeen)
        for gpu in event.gpus
        if gpu.percent is not None
    ]


def held_by_kubelets(
    events: Iterable[Event], from_ms: int, until_ms: int
) -> dict[Gpu, list[tuple[int, int, str]]]:
    """Return the times in which pods held each GPU: between two pages of the agent that both report the pod.

    The first page counts from `from_ms` on, and the last page until `until_ms`, because there is no other evidence for
    these times.
    """
    held: dict[Gpu, list[tuple[int, int, str]]] = {}
    last: dict[str, tuple[int, set[tuple[int, str]]]] = {}

    def extend(node: str, start_ms: int, end_ms: int, holders: Iterable[tuple[int, str]]) -> None:
        for gpu, pod in sorted(holders) if end_ms > start_ms else ():
            spans = held.setdefault((node, gpu), [])
            number = next((n for n, span in enumerate(spans) if span[1:] == (start_ms, pod)), None)
            if number is None:
                spans.append((start_ms, end_ms, pod))
            else:
                spans[number] = (spans[number][0], end_ms, pod)

    for event in events:
        if isinstance(event, SamplesSeen) and not event.problem:
            holders = {(gpu.index, pod) for gpu in event.gpus for pod in gpu.holders}
            before_ms, before = last.get(event.node, (from_ms, holders))
            extend(event.node, before_ms, event.t_ms, before & holders)
            last[event.node] = event.t_ms, holders
    for node, (before_ms, holders) in last.items():
        extend(node, before_ms, until_ms, holders)
    return held


def measure_utilization(
    samples: Iterable[UtilizationSample],
    held: Mapping[Gpu, Sequence[tuple[int, int, str]]],
    *,
    from_ms: int,
    until_ms: int,
    gpus_total: int,
) -> Utilization:
    """Return the utilization between two moments, by the definition of this module."""
    by_gpu: dict[Gpu, dict[int, int]] = {}
    for sample in samples:
        by_gpu.setdefault((sample.node, sample.gpu), {})[sample.t_ms] = sample.percent
    uses: list[GpuUse] = []
    everything: dict[int, int] = {}
    pods: dict[str, dict[int, int]] = {}
    percents: dict[Gpu, Fraction | None] = {}
    for gpu in sorted(held):
        clipped = [
            (max(start, from_ms), min(end, until_ms), pod)
            for start, end, pod in held[gpu]
            if start < until_ms and end > from_ms
        ]
        spans = _union((start, end) for start, end, _ in clipped)
        if not spans:
            continue
        of_gpu = sorted(by_gpu.get(gpu, {}).items())
        covered = _cover(of_gpu, spans)
        _add(everything, covered.weights)
        for start, end, pod in clipped:
            _add(pods.setdefault(pod, {}), _cover(of_gpu, [(start, end)]).weights)
        percents[gpu] = covered.percent
        uses.append(
            GpuUse(
                node=gpu[0],
                gpu=gpu[1],
                pods=sorted({pod for _, _, pod in clipped}),
                held_ms=sum(end - start for start, end in spans),
                known_ms=covered.known_ms,
                samples=covered.samples,
                centi_percent=_centi(covered.percent),
                max_gap_ms=max(covered.gaps, default=0),
                max_idle_ms=max(covered.idle, default=0),
            )
        )
    nodes = sorted({node for node, _ in percents})
    return Utilization(
        from_ms=from_ms,
        until_ms=until_ms,
        gpus_total=gpus_total,
        centi_percent=_centi(_mean_of(percents.values())),
        median=_quantile(everything, 50),
        low=_quantile(everything, 5),
        gpus=uses,
        nodes=_known({node: _mean_of(p for gpu, p in percents.items() if gpu[0] == node) for node in nodes}),
        pods=_known({pod: _mean(pods[pod]) for pod in sorted(pods)}),
    )


def judge_utilization(use: Utilization, standard: Standard) -> Judgement:
    """Return the verdict. Time without samples makes it INCONCLUSIVE, and a high mean does not excuse an idle GPU."""
    window_ms = use.until_ms - use.from_ms
    silent = [gpu.name for gpu in use.gpus if not gpu.samples]
    if not use.gpus or silent:
        subject = (
            f"no sample of {_names(silent)}" if silent else "no GPU was held, so there is nothing to judge"
        )
        return Judgement(Verdict.ERROR, subject)
    failure = _failure(use, standard, window_ms)
    if failure:
        return Judgement(Verdict.FAIL, failure)
    unknown = _unknown(use, standard, window_ms)
    if unknown:
        return Judgement(Verdict.INCONCLUSIVE, unknown)
    lowest = min(use.gpus, key=lambda gpu: gpu.centi_percent or 0)
    centi_percent, of_lowest = (
        use.centi_percent or 0,
        lowest.centi_percent or 0,
    )  # after this check every GPU has a value
    text = f"{percent_text(centi_percent)}, lowest {lowest.name} at {percent_text(of_lowest)}"
    if centi_percent < standard.minimum_percent * 100:
        return Judgement(Verdict.FAIL, f"{text}; at least {standard.minimum_percent} % are asked for")
    if of_lowest < standard.minimum_percent_of_a_gpu * 100:
        return Judgement(Verdict.FAIL, f"{text}; of each at least {standard.minimum_percent_of_a_gpu} %")
    return Judgement(Verdict.PASS, text)


def percent_text(centi_percent: int | None) -> str:
    """Return a percentage for people; `unknown` for None.

    Example: `percent_text(9702)` returns `'97.02 %'`.
    """
    if centi_percent is None:
        return "unknown"
    return f"{centi_percent // 100}.{centi_percent % 100:02d} %"


def _unknown(use: Utilization, standard: Standard, window_ms: int) -> str:
    """Return the reason if the samples prove nothing, or an empty string."""
    gap = max(use.gpus, key=lambda gpu: gpu.max_gap_ms)
    if gap.max_gap_ms > MAX_GAP_MS:
        return f"nothing is known of {gap.name} for {seconds(gap.max_gap_ms)}"
    if window_ms < standard.window_ms:
        return f"watched for {seconds(window_ms)} of {seconds(standard.window_ms)}"
    return ""


def _failure(use: Utilization, standard: Standard, window_ms: int) -> str:
    """Return the failure that no further sample could remove; empty if there is none."""
    idle = [gpu.name for gpu in use.gpus if gpu.max_idle_ms >= min(IDLE_MS, window_ms)]
    if idle:
        return f"held, and idle for {seconds(min(IDLE_MS, window_ms))} or more: {_names(idle)}"
    if not standard.all_held:
        return ""
    if len(use.gpus) < use.gpus_total:
        return f"{len(use.gpus)} of {use.gpus_total} GPUs were held"
    partly = [gpu.name for gpu in use.gpus if gpu.held_ms < window_ms]
    return f"not held all the time: {_names(partly)}" if partly else ""


def _cover(of_gpu: Sequence[tuple[int, int]], spans: Sequence[Span]) -> _Covered:
    """Return the weights of the samples within the spans. A sample counts for the time since the previous sample."""
    covered = _Covered()
    idle_ms = 0
    for start, end in spans:
        known_until = start
        idle_ms = 0
        previous = -math.inf
        for now_ms, percent in of_gpu:
            begins, ends = max(previous, start), min(now_ms, end)
            is_gap = now_ms - previous > MAX_GAP_MS
            previous = now_ms
            if now_ms <= start or begins >= end:
                continue
            covered.samples += now_ms <= end
            if is_gap:
                covered.gaps.append(ends - known_until)
                idle_ms = 0
            else:
                weight = int(ends - begins)
                covered.weights[percent] = covered.weights.get(percent, 0) + weight
                idle_ms = 0 if percent else idle_ms + weight
                covered.idle.append(idle_ms)
            known_until = ends
        covered.gaps.append(end - known_until)
    return covered


def _union(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _add(total: dict[int, int], weights: Mapping[int, int]) -> None:
    for percent, weight in weights.items():
        total[percent] = total.get(percent, 0) + weight


def _mean(weights: Mapping[int, int]) -> Fraction | None:
    known_ms = sum(weights.values())
    return (
        Fraction(sum(percent * weight for percent, weight in weights.items()), known_ms) if known_ms else None
    )


def _mean_of(percents: Iterable[Fraction | None]) -> Fraction | None:
    """Return the mean over GPUs; None if one of them is unknown."""
    known = list(percents)
    numbers = [percent for percent in known if percent is not None]
    return sum(numbers, Fraction()) / len(numbers) if numbers and len(numbers) == len(known) else None


def _centi(percent: Fraction | None) -> int | None:
    """Return hundredths of a percent, rounded down, so that a value just below a whole percent remains below it."""
    return None if percent is None else math.floor(percent * 100)


def _quantile(weights: Mapping[int, int], percent: int) -> int | None:
    """Return the quantile: the lowest value that the samples do not exceed for at least `percent` of the time."""
    known_ms, passed_ms = sum(weights.values()), 0
    for value in sorted(weights):
        passed_ms += weights[value]
        if passed_ms * 100 >= known_ms * percent:
            return value
    return None


def _known(percents: Mapping[str, Fraction | None]) -> dict[str, int]:
    return {name: math.floor(percent * 100) for name, percent in percents.items() if percent is not None}


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
