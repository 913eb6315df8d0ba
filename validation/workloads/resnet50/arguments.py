"""The command line: the four options that the paper prints, and the other options that a measurement needs."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNT_PREFIX: Final = "/mnt/mount_%d"
GPUS_OF_A_HOST: Final = {"dgx1": 8, "dgx2": 16}
SMALLEST_IMAGE: Final = 32
"""Minimum width and height of images for Keras' ResNet-50, in pixels."""
EXIT_CODES: Final = """\
exit codes:
  0    every batch was trained
  2    the command line is wrong
  10   data fault: a shard is missing or empty, a record cannot be read, storage does not answer
  11   device fault: too few GPUs, no memory on them, an error of CUDA or of another worker
  12   the loss is no longer a finite number
  143  stopped by SIGTERM; with --checkpoint_dir the next run continues
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The model, the devices and the images of a training run. Without `dataset_dir` the images are synthetic."""

    dataset_dir: Path | None
    num_mounts: int
    mount_prefix: str
    dgx_version: str
    num_devices: int
    device: str
    batch_size: int
    num_batches: int
    display_every: int
    image_size: int
    precision: str
    learning_rate: float
    seed: int
    checkpoint_dir: Path | None
    result: Path | None
    print_period: bool


def parse(argv: Sequence[str]) -> Options:
    """Return the options of these arguments. If an argument is wrong, prints the reason and exits with 2."""
    parser = _parser()
    values = vars(parser.parse_args(argv))
    values["precision"] = values["precision"] or ("mixed_float16" if values["device"] == "gpu" else "float32")
    options = Options(**values)
    problem = _problem(options)
    if problem:
        parser.error(problem)
    return options


def mount_directories(options: Options) -> list[Path]:
    """Return the directory of the images on each mount; an empty list for synthetic images.

    Raises ValueError if the directory is not below the first mount.
    """
    if options.dataset_dir is None:
        return []
    if options.num_mounts == 1:
        return [options.dataset_dir]
    below = options.dataset_dir.relative_to(options.mount_prefix % 0)
    return [Path(options.mount_prefix % number) / below for number in range(options.num_mounts)]


def _problem(options: Options) -> str:
    counts = {
        name: getattr(options, name)
        for name in ("num_mounts", "num_devices", "batch_size", "num_batches", "display_every")
    }
    most = GPUS_OF_A_HOST.get(options.dgx_version, options.num_devices)
    problems = [f"--{name} must be at least 1" for name, value in counts.items() if value < 1]
    if options.image_size < SMALLEST_IMAGE:
        problems.append(f"--image_size must be at least {SMALLEST_IMAGE}")
    if not problems and options.num_batches % options.display_every:
        problems.append("--num_batches must be a multiple of --display_every: all windows are of one length")
    if options.num_devices > most:
        problems.append(f"a {options.dgx_version} has {most} GPUs, not {options.num_devices}")
    if options.num_mounts > 1 and options.dataset_dir is None:
        problems.append("--num_mounts needs --dataset_dir")
    return next(iter([*problems, *_problems_of_mounts(options)]), "")


def _problems_of_mounts(options: Options) -> list[str]:
    if options.mount_prefix.count("%") != 1 or "%d" not in options.mount_prefix:
        return ["--mount_prefix must have one %d, for the number of the mount"]
    try:
        mount_directories(options)
    except ValueError:
        first = options.mount_prefix % 0
        return [f"--dataset_dir must be below {first}, because --num_mounts={options.num_mounts}"]
    return []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Train ResNet-50 and measure how fast, as the job netapp1 of TR-4858 does.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--dataset_dir", type=Path, help="directory of train-NNNNN-of-NNNNN; none: synthetic images")
    add("--num_mounts", type=int, default=1, help="number of mounts with the same data, read alternately (1)")
    add("--mount_prefix", default=MOUNT_PREFIX, help=f"where they are ({MOUNT_PREFIX.replace('%', '%%')})")
    add("--dgx_version", default="", help="the host, such as dgx1, which limits --num_devices")
    add("--num_devices", type=int, default=1, help="GPUs of this host (1)")
    add("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: to try it without GPUs")
    add("--batch_size", type=int, default=256, help="images in a batch of one device (256)")
    add("--num_batches", type=int, default=500, help="(500)")
    add("--display_every", type=int, default=10, help="number of batches that are timed together (10)")
    add("--image_size", type=int, default=224, help="pixels (224)")
    add(
        "--precision",
        choices=("float32", "mixed_float16", "mixed_bfloat16"),
        help="(mixed_float16, on a CPU float32)",
    )
    add("--learning_rate", type=float, default=0.1, help="for 256 images, else in proportion (0.1)")
    add("--seed", type=int, default=1, help="(1)")
    add("--checkpoint_dir", type=Path, help="continue from the checkpoint there; write one on SIGTERM")
    add("--result", type=Path, help="write the JSON document there instead of as the last line")
    add("--print_period", action="store_true", help="print the paper's tf_cnn_benchmarks line, and end")
    return parser
