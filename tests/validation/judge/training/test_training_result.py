"""The verdicts on a training run: the whole result is judged, and a good mean alone is not enough."""

import msgspec
import pytest

from tests.validation.workloads.results import SECOND, mounts, result, windows
from validation.judge.training.training_result import (
    Ended,
    RateThreshold,
    RatioThreshold,
    TrainedModel,
    TrainingData,
    TrainingEnvironment,
    TrainingResult,
    judge_mounts,
    judge_rate,
    judge_ratio,
    judge_training,
)
from validation.judge.verdict import Verdict

V100 = RateThreshold("V100", 8, 6530.59, "TR-4798", "2020-03-01", "same-pod")
REAL = RatioThreshold("real-to-synthetic", 0.97, "TR-4798", "2020-03-01", "derived")
FAULTS = [ended for ended in Ended if ended not in {Ended.COMPLETED, Ended.STOPPED}]


def replaced(original: TrainingResult, **changed: object) -> TrainingResult:
    return msgspec.structs.replace(original, **changed)


def test_a_successful_run_passes() -> None:
    run = result()
    assert judge_training(run).verdict == Verdict.PASS
    assert judge_mounts(run, 2).verdict == Verdict.PASS


@pytest.mark.parametrize("ended", FAULTS)
def test_a_fault_fails_with_its_kind_for_any_measurement_before(ended: Ended) -> None:
    run = result(ended=ended, reason="why")
    for judgement in (judge_training(run), judge_mounts(run, 2), judge_rate(run, [V100])):
        assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, f"{ended}: why")


def test_a_run_that_was_stopped_proves_nothing() -> None:
    assert judge_training(result(ended=Ended.STOPPED)).verdict == Verdict.INCONCLUSIVE


def test_batches_that_are_not_on_record_are_an_error_and_so_is_a_short_run() -> None:
    assert judge_training(result(batches_requested=501)).verdict == Verdict.ERROR
    assert "190 of 200 batches" in judge_training(result([SECOND] * 19)).reason
    assert (
        judge_training(result([SECOND] * 19, resumed_at=310, batches_requested=500)).verdict == Verdict.ERROR
    )


@pytest.mark.parametrize(
    "model",
    [
        TrainedModel("ResNet50", 23_564_800, 1000, 224, "float32", 256),
        TrainedModel("ResNet50", 25_636_712, 10, 224, "float32", 256),
        TrainedModel("ResNet50V2", 25_613_800, 1000, 224, "float32", 256),
    ],
)
def test_another_model_is_not_resnet_50(model: TrainedModel) -> None:
    assert "is not ResNet-50" in judge_training(result(model=model)).reason


def test_a_loss_that_does_not_fall_fails() -> None:
    level = [msgspec.structs.replace(window, loss=7.0) for window in windows([SECOND] * 50)]
    assert "the loss did not fall" in judge_training(result(windows=level)).reason
    level[3] = msgspec.structs.replace(level[3], loss=None)
    assert judge_training(result(windows=level)).verdict == Verdict.FAIL


def test_one_mount_for_two_fails() -> None:
    one = TrainingData("tfrecord", mounts(128_000))
    same = [msgspec.structs.replace(mount, mount_point="/mnt") for mount in mounts(64_000, 64_000)]
    unknown = [msgspec.structs.replace(mount, mount_point="") for mount in mounts(64_000, 64_000)]
    assert judge_mounts(result(data=one), 2).reason == "data was read over 1 mounts, not over 2"
    for of in (same, unknown):
        assert (
            "not on mounts of their own" in judge_mounts(result(data=TrainingData("tfrecord", of)), 2).reason
        )


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (64_000, 64_000, Verdict.PASS),
        (51_200, 76_800, Verdict.PASS),
        (51_199, 76_801, Verdict.FAIL),
        (128_000, 0, Verdict.FAIL),
        (64_000, 63_999, Verdict.FAIL),  # one image more than the mounts delivered
    ],
)
def test_each_mount_must_bring_its_part(first: int, second: int, verdict: Verdict) -> None:
    run = result(data=TrainingData("tfrecord", mounts(first, second)))
    assert judge_mounts(run, 2).verdict == verdict


@pytest.mark.parametrize(
    ("rate", "verdict"), [(6600, Verdict.PASS), (6400, Verdict.FAIL), (6531, Verdict.INCONCLUSIVE)]
)
def test_a_rate_is_judged_by_its_interval(rate: int, verdict: Verdict) -> None:
    noise = [0, 3, -2, 5, -4, 1, -1, 2, -5, 1]
    durations = [2560 * SECOND // rate * (1000 + noise[number % 10]) // 1000 for number in range(50)]
    assert judge_rate(result(durations), [V100]).verdict == verdict


def test_a_rate_without_steady_state_or_without_threshold_is_inconclusive() -> None:
    assert judge_rate(result([SECOND] * 40 + [2 * SECOND] * 10), [V100]).reason.startswith("no steady state")
    other = TrainingEnvironment("2.21.0", "3.15.1", "3.11.7", "cpu", ["CPU x86_64"])
    assert judge_rate(result(environment=other), [V100]).reason.startswith("no threshold for 1 of CPU")
    seven = TrainingEnvironment("2.21.0", "3.15.1", "3.11.7", "gpu", ["Tesla V100-SXM2-32GB"] * 7)
    assert judge_rate(result(environment=seven), [V100]).verdict == Verdict.INCONCLUSIVE


def test_the_last_short_window_is_no_part_of_the_rate() -> None:
    made = windows([SECOND] * 50)
    made[-1] = msgspec.structs.replace(made[-1], batches=1, images=256, elapsed_ns=SECOND)
    assert judge_rate(result(windows=made, batches_requested=491), [V100]).verdict == Verdict.FAIL


@pytest.mark.parametrize(
    ("real", "verdict"), [(1000, Verdict.PASS), (1030, Verdict.PASS), (1032, Verdict.FAIL)]
)
def test_a_ratio_of_two_runs(real: int, verdict: Verdict) -> None:
    run = result([real * SECOND // 1000] * 50)
    assert judge_ratio(run, result(), REAL).verdict == verdict


def test_the_document_says_everything_that_the_verdicts_need() -> None:
    run = result()
    again = msgspec.json.decode(msgspec.json.encode(run), type=TrainingResult)
    assert again == run
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(msgspec.json.encode(run)[:-1] + b',"more":1}', type=TrainingResult)
