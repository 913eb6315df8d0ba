"""How much GPUs were used while somebody held them: the definition that the report prints, and the verdict by it.

NVML says of a moment in which part of the last sample period a kernel ran, not how much of the GPU it filled. The
utilization of a GPU is the mean of that over the time in a window for which the GPU was held, each sample weighted with
the time since the one before it; the utilization is the mean over the GPUs that were held. Where samples are further
apart than MAX_GAP_MS, nothing is known of the time between them, and no sample stands for it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from validation.judge.check_verdict import Judgement
from validation.judge.events import Event, PodSeen
from validation.judge.units import seconds
from validation.judge.verdict import Verdict

WINDOW_MS: Final = 600_000
MAX_GAP_MS: Final = 10_000
IDLE_MS: Final = 60_000
"""A GPU that is held and on which so long nothing ran is idle."""
LEAST_PERCENT: Final = 95
"""The paper's 97 %, less two points."""
LEAST_PERCENT_OF_A_GPU: Final = 90

Gpu = tuple[str, int]
Span = tuple[int, int]


class UtilizationSample(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What NVML said of a GPU at a moment, about the time just before it."""

    t_ms: int
    node: str
    gpu: int
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)]


class GpuUse(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One GPU in the window. `known_ms` of `held_ms` is covered by samples; `percent` is None if nothing is."""

    node: str
    gpu: int
    jobs: list[str]
    held_ms: int
    known_ms: int
    samples: int
    percent: float | None
    max_gap_ms: int
    max_idle_ms: int

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.node}/{self.gpu}"


class Utilization(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A window. `percent` is over all GPUs that were held, `median` and `low` (5 %) over their samples by weight."""

    from_ms: int
    until_ms: int
    gpus_total: int
    percent: float | None
    median: int | None
    low: int | None
    gpus: list[GpuUse]
    nodes: dict[str, float]
    jobs: dict[str, float]


@dataclass(frozen=True, slots=True)
class Standard:
    """What is asked. `all_held`: every GPU of the cluster must be held for the whole window."""

    window_ms: int = WINDOW_MS
    least_percent: int = LEAST_PERCENT
    least_percent_of_a_gpu: int = LEAST_PERCENT_OF_A_GPU
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
    def percent(self) -> float | None:
        return _mean(self.weights)


def holdings(events: Iterable[Event], until_ms: int) -> dict[Gpu, list[tuple[int, int, str]]]:
    """When each GPU was held, and by which job: from, to, and the job as project/workload."""
    since: dict[str, tuple[int, PodSeen]] = {}
    held: dict[Gpu, list[tuple[int, int, str]]] = {}

    def close(uid: str, now_ms: int) -> None:
        started_ms, pod = since.pop(uid)
        for device in pod.devices:
            held.setdefault((pod.node, device), []).append(
                (started_ms, now_ms, f"{pod.project}/{pod.workload}")
            )

    for event in events:
        if not isinstance(event, PodSeen) or event.t_ms > until_ms:
            continue
        before = since.get(event.uid)
        if before is not None and not (event.holds and _place(before[1]) == _place(event)):
            close(event.uid, event.t_ms)
        if event.holds and event.devices and event.uid not in since:
            since[event.uid] = (event.t_ms, event)
    for uid in list(since):
        close(uid, until_ms)
    return held


def measure_utilization(
    samples: Iterable[UtilizationSample],
    held: Mapping[Gpu, Sequence[tuple[int, int, str]]],
    *,
    from_ms: int,
    until_ms: int,
    gpus_total: int,
) -> Utilization:
    """The utilization between two moments, by the definition above."""
    by_gpu: dict[Gpu, dict[int, int]] = {}
    for sample in samples:
        by_gpu.setdefault((sample.node, sample.gpu), {})[sample.t_ms] = sample.percent
    uses: list[GpuUse] = []
    everything: dict[int, int] = {}
    jobs: dict[str, dict[int, int]] = {}
    for gpu in sorted(held):
        clipped = [
            (max(start, from_ms), min(end, until_ms), job)
            for start, end, job in held[gpu]
            if start < until_ms and end > from_ms
        ]
        spans = _union((start, end) for start, end, _ in clipped)
        if not spans:
            continue
        of_gpu = sorted(by_gpu.get(gpu, {}).items())
        covered = _cover(of_gpu, spans)
        _add(everything, covered.weights)
        for start, end, job in clipped:
            _add(jobs.setdefault(job, {}), _cover(of_gpu, [(start, end)]).weights)
        uses.append(
            GpuUse(
                node=gpu[0],
                gpu=gpu[1],
                jobs=sorted({job for _, _, job in clipped}),
                held_ms=sum(end - start for start, end in spans),
                known_ms=covered.known_ms,
                samples=covered.samples,
                percent=covered.percent,
                max_gap_ms=max(covered.gaps, default=0),
                max_idle_ms=max(covered.idle, default=0),
            )
        )
    nodes = sorted({use.node for use in uses})
    return Utilization(
        from_ms=from_ms,
        until_ms=until_ms,
        gpus_total=gpus_total,
        percent=_mean_of(uses),
        median=_quantile(everything, 50),
        low=_quantile(everything, 5),
        gpus=uses,
        nodes=_known({node: _mean_of([use for use in uses if use.node == node]) for node in nodes}),
        jobs=_known({job: _mean(jobs[job]) for job in sorted(jobs)}),
    )


def judge_utilization(use: Utilization, standard: Standard) -> Judgement:
    """The verdict: what is not known decides nothing, and no mean makes up for a GPU that somebody lets idle."""
    window_ms = use.until_ms - use.from_ms
    silent = [gpu.name for gpu in use.gpus if not gpu.samples]
    if not use.gpus or silent:
        what = f"no sample of {_names(silent)}" if silent else "no GPU was held, so there is nothing to judge"
        return Judgement(Verdict.ERROR, what)
    failure = _failure(use, standard, window_ms)
    if failure:
        return Judgement(Verdict.FAIL, failure)
    unknown = _unknown(use, standard, window_ms)
    if unknown:
        return Judgement(Verdict.INCONCLUSIVE, unknown)
    lowest = min(use.gpus, key=lambda gpu: gpu.percent or 0.0)
    percent, of_lowest = use.percent or 0.0, lowest.percent or 0.0  # without a gap every GPU has one
    text = f"{percent:.2f} %, lowest {lowest.name} at {of_lowest:.2f} %"
    if percent < standard.least_percent:
        return Judgement(Verdict.FAIL, f"{text}; at least {standard.least_percent} % are asked for")
    if of_lowest < standard.least_percent_of_a_gpu:
        return Judgement(Verdict.FAIL, f"{text}; of each at least {standard.least_percent_of_a_gpu} %")
    return Judgement(Verdict.PASS, text)


def _unknown(use: Utilization, standard: Standard, window_ms: int) -> str:
    """Why nothing can be said."""
    gap = max(use.gpus, key=lambda gpu: gpu.max_gap_ms)
    if gap.max_gap_ms > MAX_GAP_MS:
        return f"nothing is known of {gap.name} for {seconds(gap.max_gap_ms)}"
    if window_ms < standard.window_ms:
        return f"watched for {seconds(window_ms)} of {seconds(standard.window_ms)}"
    return ""


def _failure(use: Utilization, standard: Standard, window_ms: int) -> str:
    """What no further sample could mend."""
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
    """The weights of the samples within the spans; a sample stands for the time since the one before it."""
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


def _place(pod: PodSeen) -> tuple[str, tuple[int, ...]]:
    return pod.node, pod.devices


def _add(total: dict[int, int], weights: Mapping[int, int]) -> None:
    for percent, weight in weights.items():
        total[percent] = total.get(percent, 0) + weight


def _mean(weights: Mapping[int, int]) -> float | None:
    known_ms = sum(weights.values())
    return sum(percent * weight for percent, weight in weights.items()) / known_ms if known_ms else None


def _mean_of(uses: Sequence[GpuUse]) -> float | None:
    """The mean over the GPUs; unknown if nothing is known of one."""
    percents = [use.percent for use in uses if use.percent is not None]
    return math.fsum(percents) / len(percents) if percents and len(percents) == len(uses) else None


def _quantile(weights: Mapping[int, int], percent: int) -> int | None:
    """The least value up to which so much of the time is."""
    known_ms, passed_ms = sum(weights.values()), 0
    for value in sorted(weights):
        passed_ms += weights[value]
        if passed_ms * 100 >= known_ms * percent:
            return value
    return None


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
