"""Real training of ResNet-50 on the CPU; TensorFlow reads the generated data. Needs the extra `resnet50`."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from validation.judge.training.training_result import Ended, TrainingResult
from validation.workloads.resnet50 import generate
from validation.workloads.resnet50.tfrecord import example_head, record

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rare,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None,
        reason="TensorFlow is not installed: uv sync --extra resnet50",
    ),
]

ROOT = Path(__file__).parents[3]
SMALL = ["--device=cpu", "--image_size=32", "--batch_size=4", "--display_every=2"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
SECONDS = 300


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "validation.workloads.resnet50", *SMALL, *arguments]


def train(*arguments: str, code: int = 0) -> tuple[TrainingResult, str]:
    """Train, and return the result from the last line and the text of standard error."""
    done = subprocess.run(
        command(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == code, done.stderr
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=TrainingResult), done.stderr


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two copies of a data set, in mount_0 and mount_1."""
    directory = tmp_path_factory.mktemp("mounts")
    shape = "--shards=4 --records=40 --record_bytes=6000 --width=48 --height=40 --classes=10 --processes=1"
    assert generate.main([str(directory / "mount_0" / "data"), *shape.split()]) == 0
    shutil.copytree(directory / "mount_0", directory / "mount_1")
    return directory


def over(directory: Path, count: int = 2) -> list[str]:
    return [
        f"--dataset_dir={directory / 'mount_0' / 'data'}",
        f"--num_mounts={count}",
        f"--mount_prefix={directory}/mount_%d",
    ]


def run_script(script: str, *arguments: str) -> str:
    """Run Python code with TensorFlow in a new process, and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env={**ENVIRONMENT, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tensorflow_reads_the_generated_files_and_writes_the_same_bytes(mounts: Path) -> None:
    script = """
        import json, sys
        import tensorflow as tf
        from validation.workloads.resnet50.tfrecord import record
        features = {name: tf.io.FixedLenFeature([], kind) for name, kind in (
            ("image/encoded", tf.string), ("image/class/label", tf.int64), ("image/filename", tf.string),
            ("image/format", tf.string), ("image/height", tf.int64), ("image/width", tf.int64))}
        seen = []
        with tf.io.TFRecordWriter(sys.argv[2]) as writer:
            for content in tf.data.TFRecordDataset(sys.argv[1]).as_numpy_iterator():
                writer.write(content)
                example = tf.io.parse_single_example(content, features)
                image = tf.io.decode_jpeg(example["image/encoded"], channels=3)
                assert image.shape == (40, 48, 3) == (example["image/height"], example["image/width"], 3)
                assert example["image/format"] == b"JPEG"
                colour = tf.reduce_mean(tf.cast(image, tf.float32), [0, 1]).numpy().round()
                seen.append([int(example["image/class/label"]), *map(int, colour)])
        assert open(sys.argv[1], "rb").read() == open(sys.argv[2], "rb").read()
        print(json.dumps(seen))
    """
    shard = mounts / "mount_0" / "data" / "train-00001-of-00004"
    seen = json.loads(run_script(script, str(shard), str(mounts / "again")))
    assert len(seen) == 40
    colours: dict[int, set[tuple[int, ...]]] = {}
    for label, *colour in seen:
        colours.setdefault(label, set()).add(tuple(colour))
    assert set(colours) <= set(range(1, 11))
    assert all(len(of) == 1 for of in colours.values())
    assert len(set.union(*colours.values())) == len(colours) > 5


def test_images_over_two_mounts_are_counted_and_the_document_is_whole(mounts: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        command(*over(mounts), "--num_batches=8", f"--result={tmp_path / 'r.json'}"),
        env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    run = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=TrainingResult)
    assert run.ended == Ended.COMPLETED
    assert [(window.first_batch, window.batches, window.images) for window in run.windows] == [
        (first, 2, 8) for first in (0, 2, 4, 6)
    ]
    assert sum(mount.images for mount in run.data.mounts) == 32
    assert all(mount.images for mount in run.data.mounts)
    assert (run.model.name, run.model.parameters) == ("ResNet50", 25_636_712)
    assert done.stdout.count("images/sec") == 4


def test_the_loss_falls_on_synthetic_images() -> None:
    run, _ = train("--num_batches=16")
    losses = [window.loss for window in run.windows if window.loss is not None]
    assert run.data.kind == "synthetic"
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("damage", ["record", "label", "shard"])
def test_damaged_data_is_a_data_fault(damage: str, mounts: Path, tmp_path: Path) -> None:
    shutil.copytree(mounts / "mount_0", tmp_path / "mount_0")
    shard = tmp_path / "mount_0" / "data" / "train-00002-of-00004"
    content = bytearray(shard.read_bytes())
    if damage == "record":
        content[100] ^= 1
        shard.write_bytes(content)
    elif damage == "label":
        shape = generate.Shape(shards=4, records=40, record_bytes=6000, width=48, height=40, classes=10)
        material = generate.prepare(shape)
        head = example_head({"image/class/label": 1001}, "image/encoded", 0)
        shard.write_bytes(b"".join([*record(head), *generate.shard_parts(shape, 2, material)]))
    else:
        shard.unlink()
    run, error = train(*over(tmp_path, 1), "--num_batches=60", code=10)
    assert run.ended == Ended.DATA_FAULT
    assert error.splitlines()[-1].startswith("run.py: data fault: ")


def test_too_few_gpus_are_a_device_fault() -> None:
    done = subprocess.run(
        [*command("--num_batches=2"), "--device=gpu", "--num_devices=8"],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 11
    assert done.stderr.splitlines()[-1] == ("run.py: device fault: 8 GPU devices are asked for, 0 are there")


def test_a_loss_that_is_no_number_ends_it() -> None:
    run, _ = train("--num_batches=12", "--learning_rate=1e38", code=12)
    assert (run.ended, run.windows[-1].loss) == (Ended.DIVERGED, None)


def test_sigterm_leaves_a_checkpoint_and_the_next_run_continues_from_it(tmp_path: Path) -> None:
    arguments = [f"--checkpoint_dir={tmp_path / 'c'}", f"--result={tmp_path / 'r.json'}", "--num_batches=12"]
    process = subprocess.Popen(command(*arguments), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("4\t"):
            process.send_signal(signal.SIGTERM)
            break
    process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    first = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=TrainingResult)
    assert first.ended == Ended.STOPPED
    assert 4 <= first.batches < 12
    second, _ = train(*arguments[:1], "--num_batches=12")
    assert (second.ended, second.resumed_at, second.batches) == (
        Ended.COMPLETED,
        first.batches,
        12 - first.batches,
    )
    before, after = first.windows[0].loss, second.windows[0].loss
    assert before is not None
    assert after is not None
    assert after < before


def test_two_devices_take_the_same_step_as_one_with_the_same_images() -> None:
    script = """
        import numpy as np, sys
        import tensorflow as tf
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()]
        tf.config.set_logical_device_configuration(cpu, two)
        from validation.workloads.resnet50 import training
        from validation.workloads.resnet50.arguments import parse
        images = tf.random.stateless_normal([4, 32, 32, 3], [1, 2])
        labels = tf.constant([1, 2, 3, 4], tf.int64)
        weights = []
        for devices in (1, 2):
            line = f"--device=cpu --image_size=32 --batch_size=4 --num_devices={devices}"
            trainer = training.Trainer(parse(line.split()), 0)
            trainer._optimizer.learning_rate = 0.1
            batch = (images, labels, tf.zeros([4], tf.int64))
            of_each = trainer._strategy.experimental_distribute_values_from_function
            values = [of_each(lambda _, part=part: part) for part in batch]
            loss, counts, _ = trainer._step(*values, tf.constant(0))
            assert counts.numpy().tolist() == [4 * devices]
            weights.append([float(loss), *(variable.numpy() for variable in trainer.model.trainable_variables)])
        assert all(np.allclose(one, other, atol=1e-5) for one, other in zip(*weights, strict=True))
    """
    run_script(script)


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_two_workers_train_together_and_stop_together(mounts: Path, tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    processes = []
    for worker in range(2):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": worker}}
        processes.append(
            subprocess.Popen(
                command(
                    *over(mounts),
                    "--num_batches=12",
                    f"--checkpoint_dir={tmp_path / 'c'}",
                    f"--result={tmp_path / f'{worker}.json'}",
                ),
                env={**ENVIRONMENT, "TF_CONFIG": json.dumps(cluster)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    second = processes[1].stdout
    assert second is not None
    for line in second:
        if line.startswith("2\t"):
            processes[1].send_signal(signal.SIGTERM)
            break
    for process in processes:
        process.communicate(timeout=SECONDS)
    assert [process.returncode for process in processes] == [143, 143]
    assert not (tmp_path / "1.json").exists()
    run = msgspec.json.decode((tmp_path / "0.json").read_bytes(), type=TrainingResult)
    assert (run.ended, run.environment.workers) == (Ended.STOPPED, 2)
    assert run.windows[0].images == 2 * 2 * 4
    assert sum(mount.images for mount in run.data.mounts) == 8 * run.batches
