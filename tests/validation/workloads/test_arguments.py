"""The command line of ResNet-50: each word of the paper's command is accepted, and errors are refused."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from validation.workloads.resnet50.arguments import mount_directories, parse
from validation.workloads.resnet50.period import period_command
from validation.workloads.resnet50.run import main

PAPER_LINE = (
    'runai submit netapp1 -i netapp/tensorflow-tf1-py3:20.01.0 --local-image --large-shm -v /mnt:/mnt -v /tmp:/tmp '
    '--command python --args "/netapp/scripts/run.py" '
    '--args "--dataset_dir=/mnt/mount_0/dataset/imagenet/imagenet_original/" --args "--num_mounts=2" '
    '--args "--dgx_version=dgx1" --args "--num_devices=1" -g 1'
)  # fmt: skip
_WORDS = shlex.split(PAPER_LINE)
PAPER_ARGUMENTS = [after for word, after in pairwise(_WORDS) if word == "--args"][1:]


def test_the_papers_arguments_are_taken_as_they_are() -> None:
    options = parse(PAPER_ARGUMENTS)
    assert (options.num_mounts, options.num_devices, options.dgx_version) == (2, 1, "dgx1")
    assert (options.batch_size, options.num_batches, options.image_size) == (256, 500, 224)
    assert (options.device, options.precision) == ("gpu", "mixed_float16")
    assert mount_directories(options) == [
        Path("/mnt/mount_0/dataset/imagenet/imagenet_original"),
        Path("/mnt/mount_1/dataset/imagenet/imagenet_original"),
    ]


def test_the_line_of_the_paper_is_the_one_that_the_command_line_is_tested_with() -> None:
    table = (Path(__file__).parents[2] / "cli_table" / "1-paper.yaml").read_text()
    assert PAPER_LINE in table


def test_without_a_directory_the_images_are_synthetic_and_on_a_cpu_numbers_have_32_bits() -> None:
    options = parse(["--device=cpu"])
    assert mount_directories(options) == []
    assert options.precision == "float32"
    assert parse(["--device=cpu", "--precision=mixed_bfloat16"]).precision == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--num_devices=9 --dgx_version=dgx1", "a dgx1 has 8 GPUs, not 9"),
        ("--num_devices=0", "--num_devices must be at least 1"),
        ("--num_mounts=2", "--num_mounts needs --dataset_dir"),
        ("--num_mounts=2 --dataset_dir=/data", "--dataset_dir must be below /mnt/mount_0"),
        ("--num_mounts=2 --dataset_dir=/mnt/mount_00/x", "--dataset_dir must be below /mnt/mount_0"),
        ("--num_mounts=2 --dataset_dir=/m/0/x --mount_prefix=/m/", "--mount_prefix must have one %d"),
        ("--mount_prefix=/m/%d/%d", "--mount_prefix must have one %d"),
        ("--mount_prefix=/m/%d%s", "--mount_prefix must have one %d"),
        ("--image_size=31", "--image_size must be at least 32"),
        ("--num_batches=15", "--num_batches must be a multiple of --display_every"),
        ("--num_mount=2", "unrecognized arguments: --num_mount=2"),
        ("--num_batches=many", "invalid int value: 'many'"),
    ],
)
def test_senseless_options_are_refused_with_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_code:
        parse(shlex.split(line))
    assert exit_code.value.code == 2
    assert message in capsys.readouterr().err


def test_the_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    assert all(re.search(rf"^  {code} ", text, re.MULTILINE) for code in (0, 2, 10, 11, 12, 143))


NETAPP_LOG = (
    "--model=resnet50 --batch_size=256 --device=gpu --force_gpu_compatible=True --num_intra_threads=1 "
    "--num_inter_threads=48 --variable_update=horovod --horovod_device=gpu --batch_group_size=20 --num_batches=500 "
    "--nodistortions --num_gpus=1 --data_format=NCHW --use_fp16=True --use_tf_layers=False --data_name=imagenet "
    "--use_datasets=True --data_dir=/mnt/mount_0/dataset/imagenet/imagenet_original "
    "--datasets_parallel_interleave_cycle_length=10 --datasets_sloppy_parallel_interleave=False --num_mounts=2 "
    "--mount_prefix=/mnt/mount_%d --datasets_prefetch_buffer_size=2000 --datasets_use_prefetch=True "
    "--datasets_num_private_threads=4"
)


def test_the_line_of_the_papers_time_is_rendered_as_netapp_logged_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    eight = [*PAPER_ARGUMENTS[:-1], "--num_devices=8"]
    assert period_command(parse(eight))[9:] == NETAPP_LOG.split()
    assert period_command(parse(eight))[:3] == ["mpirun", "-np", "8"]
    assert main([*eight, "--print_period"]) == 0
    assert capsys.readouterr().out.startswith(
        "mpirun -np 8 -bind-to none -map-by slot python tf_cnn_benchmarks.py "
    )


def test_the_public_tf_cnn_benchmarks_is_not_given_options_that_it_does_not_have() -> None:
    one = period_command(parse(["--dataset_dir=/data"]))
    assert not any(word.startswith(("--num_mounts", "--mount_prefix")) for word in one)
    assert not any("data_dir" in word for word in period_command(parse([])))
