"""The result of a training run as data, and the verdicts on it."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Literal

import msgspec

from validation.judge.check_verdict import Judgement
from validation.judge.training.rates import Rate, measure
from validation.judge.verdict import Verdict

LEAST_BATCHES: Final = 200
RESNET50_PARAMETERS: Final = 25_636_712
"""Number of parameters of Keras' ResNet-50 with 1,000 classes."""
MAX_REASON: Final = 300
LEAST_OF_A_MOUNT_PERMILLE: Final = 800
"""Minimum portion of an equal share of the images that each mount must have delivered."""


class Ended(StrEnum):
    """How a training run ended."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    """A signal stopped it, and it wrote a checkpoint."""
    DATA_FAULT = "data fault"
    DEVICE_FAULT = "device fault"
    DIVERGED = "diverged"
    """The loss became infinite or NaN."""


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of the parts of the document. Names in JSON are in camel case, and unknown names are refused."""


class TrainedModel(_Part, frozen=True):
    """The trained model. `precision` is Keras' name of the policy, `batch_size` is for one device."""

    name: str
    parameters: int
    classes: int
    image_size: int
    precision: str
    batch_size: int


class MountRead(_Part, frozen=True):
    """A directory of data, its mount as the kernel lists it, and the number of images that were read from it."""

    directory: str
    mount_point: str = ""
    source: str = ""
    file_system: str = ""
    shards: int = 0
    images: int = 0


class TrainingData(_Part, frozen=True):
    """Where the images came from; `synthetic` has no mounts."""

    kind: Literal["synthetic", "tfrecord"]
    mounts: list[MountRead] = []


class TrainingEnvironment(_Part, frozen=True):
    """The environment of the run. `devices` has the model of each device of all workers."""

    tensorflow: str
    keras: str
    python: str
    device_kind: Literal["gpu", "cpu"]
    devices: list[str]
    workers: int = 1


class TrainingWindow(_Part, frozen=True):
    """Several batches that were timed together. During `data_wait_ns` the training waited for images."""

    first_batch: int
    batches: int
    images: int
    elapsed_ns: int
    data_wait_ns: int
    loss: float | None
    """Mean cross-entropy of its batches; None if it is no finite number."""


class TrainingResult(_Part, frozen=True):
    """The document that a training run prints. `resumed_at` is the batch of the checkpoint from which it resumed."""

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["TrainingResult"]
    ended: Ended
    reason: str
    argv: list[str]
    batches_requested: int
    resumed_at: int
    seed: int
    model: TrainedModel
    data: TrainingData
    environment: TrainingEnvironment
    windows: list[TrainingWindow]

    @property
    def batches(self) -> int:
        """The number of batches that this process trained."""
        return sum(window.batches for window in self.windows)


class RateThreshold(_Part, frozen=True):
    """The minimum rate for a number of devices of a model, with its source. `gpu` occurs in the device's name."""

    gpu: str
    gpus: int
    images_per_second: float
    source: str
    date: str
    confidence: str


class RatioThreshold(_Part, frozen=True):
    """The minimum ratio of the rates of two runs, with its source."""

    of: Literal["real-to-synthetic", "two-hosts-to-one"]
    least: float
    source: str
    date: str
    confidence: str


def end_of(result: TrainingResult) -> str:
    """Return how the run ended, and at most the first 300 characters of the reason."""
    return f"{result.ended}: {' '.join(result.reason.split())[:MAX_REASON]}"


def rate_of(result: TrainingResult) -> Rate | None:
    """Return the images per second, from the windows with as many batches as the first one; None if they are too
    few.
    """
    whole = [window for window in result.windows if window.batches == result.windows[0].batches]
    return measure([window.images for window in whole], [window.elapsed_ns for window in whole])


def judge_training(result: TrainingResult) -> Judgement:
    """Judge whether the complete ResNet-50 was trained to the end, and its loss fell."""
    unfinished = _judge_end(result)
    if unfinished is not None:
        return unfinished
    model = result.model
    if (model.name, model.parameters, model.classes) != ("ResNet50", RESNET50_PARAMETERS, 1000):
        return Judgement(
            Verdict.FAIL,
            f"{model.name} with {model.parameters} parameters and {model.classes} classes is not ResNet-50",
        )
    fifth = max(1, len(result.windows) // 5)
    first, last = _mean_loss(result.windows[:fifth]), _mean_loss(result.windows[-fifth:])
    if not last < first:  # a NaN fails too
        return Judgement(Verdict.FAIL, f"the loss did not fall: {first:.3f} at first, {last:.3f} at last")
    return Judgement(Verdict.PASS)


def judge_mounts(result: TrainingResult, requested: int) -> Judgement:
    """Judge whether images were read from the requested number of mounts, and at least `LEAST_OF_A_MOUNT_PERMILLE` of
    an equal share from each.
    """
    unfinished = _judge_end(result)
    if unfinished is not None:
        return unfinished
    mounts = result.data.mounts
    points = {mount.mount_point for mount in mounts}
    if len(mounts) != requested:
        return Judgement(Verdict.FAIL, f"data was read over {len(mounts)} mounts, not over {requested}")
    if len(points) != requested or "" in points:
        names = ", ".join(mount.directory for mount in mounts)
        return Judgement(Verdict.FAIL, f"{names} are not on mounts of their own")
    total = sum(mount.images for mount in mounts)
    if total < sum(window.images for window in result.windows):
        return Judgement(Verdict.FAIL, f"only {total} of the images that were trained came over a mount")
    least = min(mounts, key=lambda mount: mount.images)
    if least.images * requested * 1000 < LEAST_OF_A_MOUNT_PERMILLE * total:
        return Judgement(Verdict.FAIL, f"only {least.images} of {total} images came over {least.mount_point}")
    return Judgement(Verdict.PASS)


def judge_rate(result: TrainingResult, thresholds: Sequence[RateThreshold]) -> Judgement:
    """Judge whether the interval of the rate, not only its mean, reaches the threshold for these devices."""
    unfinished = _judge_end(result)
    if unfinished is not None:
        return unfinished
    rate = rate_of(result)
    if rate is None:
        return Judgement(Verdict.ERROR, f"too few windows for a rate: {len(result.windows)}")
    if not rate.is_steady:
        return Judgement(Verdict.INCONCLUSIVE, f"no steady state: {describe(rate)}")
    threshold = _threshold(result.environment, thresholds)
    if threshold is None:
        devices = result.environment.devices
        return Judgement(
            Verdict.INCONCLUSIVE,
            f"no threshold for {len(devices)} of {', '.join(sorted(set(devices)))}: {describe(rate)}",
        )
    return judge_interval(rate.low, rate.high, threshold.images_per_second, "images/s", threshold.source)


def judge_ratio(result: TrainingResult, base: TrainingResult, threshold: RatioThreshold) -> Judgement:
    """Judge whether one rate is at least the threshold times another: real data to synthetic, two hosts to one.

    The interval is the widest that the intervals of both rates allow.
    """
    rates = []
    for of in (result, base):
        unfinished = _judge_end(of)
        if unfinished is not None:
            return unfinished
        rate = rate_of(of)
        if rate is None:
            return Judgement(Verdict.ERROR, f"too few windows for a rate: {len(of.windows)}")
        if not rate.is_steady:
            return Judgement(Verdict.INCONCLUSIVE, f"no steady state: {describe(rate)}")
        rates.append(rate)
    low, high = rates[0].low / rates[1].high, rates[0].high / rates[1].low
    return judge_interval(low, high, threshold.least, f"times ({threshold.of})", threshold.source)


def judge_interval(low: float, high: float, least: float, unit: str, source: str) -> Judgement:
    """Return PASS if the whole interval is at least the minimum, FAIL if the whole interval is below it, else
    INCONCLUSIVE.
    """
    text = f"{low:.4g} to {high:.4g} {unit}, at least {least:.6g} by {source}"
    if low >= least:
        return Judgement(Verdict.PASS, text)
    return Judgement(Verdict.FAIL if high < least else Verdict.INCONCLUSIVE, text)


def describe(rate: Rate) -> str:
    """Return the rate in words."""
    return (
        f"{rate.mean:.4g} images/s (95 %: {rate.low:.4g} to {rate.high:.4g}) over {rate.windows} windows after "
        f"{rate.warm_up} of warm-up; spread {rate.spread_permille / 10:.1f} %, drift {rate.drift_permille / 10:.1f} %"
    )


def _judge_end(result: TrainingResult) -> Judgement | None:
    """Return the verdict on a run that did not complete, or is too short; None for a complete run."""
    if result.ended == Ended.STOPPED:
        return Judgement(
            Verdict.INCONCLUSIVE, f"stopped after {result.batches} of {result.batches_requested} batches"
        )
    if result.ended != Ended.COMPLETED:
        return Judgement(Verdict.FAIL, end_of(result))
    if result.resumed_at + result.batches != result.batches_requested:
        return Judgement(
            Verdict.ERROR,
            f"{result.resumed_at} + {result.batches} batches on record, not {result.batches_requested}",
        )
    if result.batches < LEAST_BATCHES:
        return Judgement(
            Verdict.ERROR,
            f"less evidence than the check needs: {result.batches} of {LEAST_BATCHES} batches in one process",
        )
    return None


def _mean_loss(windows: Sequence[TrainingWindow]) -> float:
    losses = [math.nan if window.loss is None else window.loss for window in windows]
    return math.fsum(losses) / len(losses)


def _threshold(environment: TrainingEnvironment, thresholds: Sequence[RateThreshold]) -> RateThreshold | None:
    return next(
        (
            threshold
            for threshold in thresholds
            if threshold.gpus == len(environment.devices)
            and all(threshold.gpu in device for device in environment.devices)
        ),
        None,
    )
