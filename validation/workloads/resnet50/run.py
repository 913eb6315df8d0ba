"""The job netapp1: `python run.py --dataset_dir=… --num_mounts=2 --dgx_version=dgx1 --num_devices=1`.

Needs TensorFlow; see `arguments` for the options and the exit codes.
"""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator.distribution import install_command
from validation.judge.training.training_result import (
    Ended,
    TrainingData,
    TrainingResult,
    TrainingWindow,
    describe,
    rate_of,
)
from validation.workloads.resnet50.arguments import Options, mount_directories, parse
from validation.workloads.resnet50.faults import EXIT_CODES, TrainingFault
from validation.workloads.resnet50.period import period_command
from validation.workloads.resnet50.shards import Shard, describe_mounts, find_shards

if TYPE_CHECKING:
    from validation.workloads.resnet50.training import Progress, Trainer

MOUNTINFO: Final = Path("/proc/self/mountinfo")


def main(argv: Sequence[str] | None = None) -> int:
    """Train with the options of the command line; return the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    options = parse(arguments)
    if options.print_period:
        sys.stdout.write(shlex.join(period_command(options)) + "\n")
        return 0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow reads it at import
    stopping = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        from validation.workloads.resnet50.training import Trainer  # noqa: PLC0415 - slow, and not always there
    except ImportError as error:
        sys.stderr.write(f"run.py: {error}; install TensorFlow with {install_command('resnet50')}\n")
        return 2
    try:
        return _train(options, arguments, Trainer, stopping)
    except TrainingFault as fault:  # a fault before the training, so there is no result document
        sys.stderr.write(f"run.py: {fault.ended}: {fault}\n")
        return EXIT_CODES[fault.ended]
    finally:
        signal.signal(signal.SIGTERM, before)


def _train(
    options: Options, arguments: Sequence[str], make: "type[Trainer]", stopping: threading.Event
) -> int:
    directories = mount_directories(options)
    trainer = make(options, len(directories))
    shards: list[Shard] = []
    progress: Progress | None = None
    ended, reason = Ended.COMPLETED, ""
    try:
        if directories:
            shards = find_shards(directories, worker=trainer.worker, workers=trainer.workers)
        for progress in trainer.train(shards, is_stopping=stopping.is_set, show=_show):
            if progress.stopped:
                ended, reason = Ended.STOPPED, f"SIGTERM; checkpoint: {trainer.save() or 'none'}"
                break
    except TrainingFault as fault:
        ended, reason = fault.ended, str(fault)
    images = progress.mount_images if progress is not None else [0] * len(directories)
    mounts = describe_mounts(directories, shards, images, MOUNTINFO.read_text())
    result = TrainingResult(
        api_version="muster.dev/v1alpha1",
        kind="TrainingResult",
        ended=ended,
        reason=reason,
        argv=list(arguments),
        batches_requested=options.num_batches,
        resumed_at=progress.resumed_at if progress is not None else 0,
        seed=options.seed,
        model=trainer.describe_model(),
        data=TrainingData("tfrecord" if directories else "synthetic", mounts),
        environment=trainer.describe_environment(),
        windows=progress.windows if progress is not None else [],
    )
    if trainer.worker == 0:
        _write(result, options.result)
    return EXIT_CODES[ended]


def _show(window: TrainingWindow) -> None:
    loss = "-" if window.loss is None else f"{window.loss:.3f}"
    rate = window.images * 1e9 / window.elapsed_ns
    sys.stdout.write(f"{window.first_batch + window.batches}\timages/sec: {rate:.1f}\t{loss}\n")
    sys.stdout.flush()


def _write(result: TrainingResult, path: Path | None) -> None:
    """Write the result document atomically to `path`, or without a path as the last line of the output."""
    rate = rate_of(result)
    if result.reason:
        sys.stderr.write(f"run.py: {result.ended}: {result.reason}\n")
    if rate is not None:
        sys.stdout.write(f"{describe(rate)}\n")
    content = msgspec.json.encode(result)
    if path is None:
        sys.stdout.write(content.decode() + "\n")
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
