"""Results of training runs, made for tests of the judge."""

from collections.abc import Sequence

import msgspec

from validation.judge.training.training_result import (
    RESNET50_PARAMETERS,
    Ended,
    MountRead,
    TrainedModel,
    TrainingData,
    TrainingEnvironment,
    TrainingResult,
    TrainingWindow,
)

SECOND = 1_000_000_000


def windows(durations_ns: Sequence[int], batches: int = 10, images: int = 2560) -> list[TrainingWindow]:
    """Return windows of these durations, with a loss that falls from 7."""
    return [
        TrainingWindow(
            first_batch=number * batches,
            batches=batches,
            images=images,
            elapsed_ns=duration_ns,
            data_wait_ns=0,
            loss=7.0 - number / 100,
        )
        for number, duration_ns in enumerate(durations_ns)
    ]


def mounts(*images: int) -> list[MountRead]:
    """Return reads over one mount for each number of images."""
    return [
        MountRead(
            directory=f"/mnt/mount_{number}/imagenet",
            mount_point=f"/mnt/mount_{number}",
            source=f"10.0.0.{number}:/imagenet",
            file_system="nfs4",
            shards=512,
            images=count,
        )
        for number, count in enumerate(images)
    ]


def result(durations_ns: Sequence[int] = (SECOND,) * 50, **changed: object) -> TrainingResult:
    """Return the result of a good run with these changes."""
    made = windows(durations_ns)
    total = sum(window.images for window in made)
    whole = TrainingResult(
        api_version="muster.dev/v1alpha1",
        kind="TrainingResult",
        ended=Ended.COMPLETED,
        reason="",
        argv=[],
        batches_requested=sum(window.batches for window in made),
        resumed_at=0,
        seed=1,
        model=TrainedModel("ResNet50", RESNET50_PARAMETERS, 1000, 224, "mixed_float16", 256),
        data=TrainingData("tfrecord", mounts(total // 2, total - total // 2)),
        environment=TrainingEnvironment("2.21.0", "3.15.1", "3.11.7", "gpu", ["Tesla V100-SXM2-32GB"] * 8),
        windows=made,
    )
    return msgspec.structs.replace(whole, **changed)
