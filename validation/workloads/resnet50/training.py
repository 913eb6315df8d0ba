"""Trains ResNet-50 and times it: the part that needs TensorFlow, Keras and the devices."""

import contextlib
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from validation.judge.training.training_result import TrainedModel, TrainingEnvironment, TrainingWindow
from validation.workloads.resnet50.arguments import Options
from validation.workloads.resnet50.faults import DataFault, DeviceFault, Diverged
from validation.workloads.resnet50.pipeline import CLASSES, shard_batches, synthetic_batches
from validation.workloads.resnet50.shards import Shard

LOSS_SCALE: Final = 128.0
"""Factor of the loss. Without it, small gradients of 16 bits would become 0. tf_cnn_benchmarks has the same factor."""
MOMENTUM: Final = 0.9
_KEEP: Final = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """The training so far. `mount_images` has the number of images of each mount, over all workers."""

    resumed_at: int
    windows: list[TrainingWindow]
    mount_images: list[int]
    stopped: bool = False


class Trainer:
    """The model on its devices. TF_CONFIG, TensorFlow's own variable, names the other workers."""

    def __init__(self, options: Options, mounts: int) -> None:
        self._options = options
        self._mounts = max(1, mounts)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.workers = max(1, len(resolver.cluster_spec().as_dict().get("worker", [])))
        self.worker = int(resolver.task_id or 0) if self.workers > 1 else 0
        with _as_device_fault():
            self._devices = _devices(options)
            # Create the strategy before any operation runs on a device. Later, the workers can no longer
            # connect to each other.
            self._strategy = _strategy(options, self.workers)
            keras.utils.set_random_seed(options.seed)
            keras.mixed_precision.set_global_policy(options.precision)
            with self._strategy.scope():
                self._build()
        self._step = tf.function(self._train_on_all)

    def _build(self) -> None:
        options = self._options
        size = options.image_size
        self.model = keras.applications.ResNet50(
            weights=None, classes=CLASSES, input_shape=(size, size, 3), classifier_activation=None
        )
        replicas = self._strategy.num_replicas_in_sync
        rate = options.learning_rate * options.batch_size * replicas / 256
        self._optimizer = keras.optimizers.SGD(rate, momentum=MOMENTUM)
        self._optimizer.build(self.model.trainable_variables)
        self._batches_done = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self._optimizer, batches=self._batches_done
        )

    def describe_model(self) -> TrainedModel:
        """Return the description of the trained model."""
        return TrainedModel(
            name="ResNet50" if self.model.name == "resnet50" else self.model.name,
            parameters=self.model.count_params(),
            classes=self.model.output_shape[-1],
            image_size=self._options.image_size,
            precision=keras.mixed_precision.dtype_policy().name,
            batch_size=self._options.batch_size,
        )

    def describe_environment(self) -> TrainingEnvironment:
        """Return the versions and the devices of the training."""
        return TrainingEnvironment(
            tensorflow=tf.__version__,
            keras=keras.__version__,
            python=platform.python_version(),
            device_kind="gpu" if self._options.device == "gpu" else "cpu",
            devices=[_model_of(device) for device in self._devices] * self.workers,
            workers=self.workers,
        )

    def train(
        self,
        shards: Sequence[Shard],
        *,
        is_stopping: Callable[[], bool],
        show: Callable[[TrainingWindow], None] = lambda _: None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> Iterator[Progress]:
        """Train window after window. Yield the progress before the first window and after each window.

        Raises DataFault, DeviceFault or Diverged.
        """
        options = self._options
        with _as_device_fault():
            resumed_at = self._restore()
        with _as_data_fault():
            batches = iter(self._distribute(shards))
        windows: list[TrainingWindow] = []
        images = [0] * self._mounts
        done = resumed_at
        yield Progress(resumed_at, windows, images)
        while done < options.num_batches:
            count = min(options.display_every, options.num_batches - done)
            window, window_images, stop = self._window(batches, done, count, is_stopping, clock_ns)
            done += count
            windows.append(window)
            images = [before + more for before, more in zip(images, window_images, strict=True)]
            show(window)
            self._batches_done.assign(done)
            yield Progress(resumed_at, windows, images, stopped=stop and done < options.num_batches)
            if window.loss is None:
                raise Diverged(f"the loss is no finite number after {done} batches")

    def save(self) -> str:
        """If the options name a directory, write a checkpoint and return its path; else return "".

        Training resumes from the first worker's checkpoint.
        """
        directory = self._options.checkpoint_dir
        if directory is None:
            return ""
        if self.worker:
            directory = directory / f".worker-{self.worker}"
        with _as_data_fault():
            return str(tf.train.CheckpointManager(self._checkpoint, str(directory), _KEEP).save())

    def _restore(self) -> int:
        directory = self._options.checkpoint_dir
        latest = tf.train.latest_checkpoint(str(directory)) if directory is not None else None
        if latest is None:
            return 0
        with _as_data_fault():
            self._checkpoint.restore(latest).assert_existing_objects_matched()
        return int(self._batches_done.numpy())

    def _distribute(self, shards: Sequence[Shard]) -> Any:
        options = self._options
        size = options.batch_size * options.num_devices
        seed = options.seed + self.worker
        if shards:
            batches = shard_batches(shards, size, options.image_size, seed)
        else:
            batches = synthetic_batches(size, options.image_size, seed)
        distribution = tf.data.Options()
        distribution.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return self._strategy.distribute_datasets_from_function(
            lambda _: _split(batches.with_options(distribution), options.num_devices)
        )

    def _window(
        self,
        batches: Iterator[Any],
        first: int,
        count: int,
        is_stopping: Callable[[], bool],
        clock_ns: Callable[[], int],
    ) -> tuple[TrainingWindow, list[int], bool]:
        """Train `count` batches.

        Return their window, the images of each mount, and whether a worker stops. The host waits for the devices once,
        at the end.
        """
        losses, image_counts, stops = [], [], []
        started_ns = clock_ns()
        waited_ns = 0
        for _ in range(count):
            requested_ns = clock_ns()
            with _as_data_fault():
                batch = next(batches)
            waited_ns += clock_ns() - requested_ns
            with _as_device_fault():
                loss, images, stop = self._step(*batch, tf.constant(int(is_stopping())))
            losses.append(loss)
            image_counts.append(images)
            stops.append(stop)
        with _as_device_fault():
            values = [float(loss.numpy()) for loss in losses]
            per_mount = [int(number) for number in sum(images.numpy() for images in image_counts)]
            stop = any(int(stop.numpy()) for stop in stops)
        mean = math.fsum(values) / count
        window = TrainingWindow(
            first_batch=first,
            batches=count,
            images=sum(per_mount),
            elapsed_ns=clock_ns() - started_ns,
            data_wait_ns=waited_ns,
            loss=mean if math.isfinite(mean) else None,
        )
        return window, per_mount, stop

    def _train_on_all(self, images: Any, labels: Any, mounts: Any, stop: Any) -> tuple[Any, Any, Any]:
        """Train one batch on every device of every worker.

        Return the mean loss, the images of each mount, and the sum of the stop votes of all devices.
        """
        loss, counts, stops = self._strategy.run(self._train, args=(images, labels, mounts, stop))
        reduce, operation = self._strategy.reduce, tf.distribute.ReduceOp.SUM
        return (
            reduce(operation, loss, axis=None),
            reduce(operation, counts, axis=None),
            reduce(operation, stops, axis=None),
        )

    def _train(self, images: Any, labels: Any, mounts: Any, stop: Any) -> tuple[Any, Any, Any]:
        with tf.GradientTape() as tape:
            logits = tf.cast(self.model(images, training=True), tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses) / self._strategy.num_replicas_in_sync
            scaled = loss * LOSS_SCALE
        variables = self.model.trainable_variables
        gradients = [gradient / LOSS_SCALE for gradient in tape.gradient(scaled, variables)]
        self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss, tf.reduce_sum(tf.one_hot(mounts, self._mounts, dtype=tf.int64), axis=0), stop


def _split(batches: Any, devices: int) -> Any:
    """Return the data set with each batch of a host split into batches of its devices, in order."""
    if devices == 1:
        return batches
    return batches.unbatch().batch(batches.element_spec[0].shape[0] // devices, drop_remainder=True)


def _devices(options: Options) -> list[Any]:
    """Return the devices to train on. Raises DeviceFault if there are too few."""
    kind = options.device.upper()
    present = tf.config.list_physical_devices(kind)
    count = len(present)
    if kind == "CPU" and options.num_devices > 1:
        count = len(tf.config.list_logical_devices(kind))
    if count < options.num_devices:
        raise DeviceFault(f"{options.num_devices} {kind} devices are asked for, {count} are there")
    if kind == "GPU":
        # Otherwise each worker would take all GPUs.
        tf.config.set_visible_devices(present[: options.num_devices], kind)
    return [present[min(number, len(present) - 1)] for number in range(options.num_devices)]


def _strategy(options: Options, workers: int) -> Any:
    if workers > 1:
        kind = tf.distribute.experimental.CommunicationImplementation
        implementation = kind.NCCL if options.device == "gpu" else kind.RING
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=implementation
            )
        )
    names = [f"/{options.device}:{number}" for number in range(options.num_devices)]
    return (
        tf.distribute.MirroredStrategy(names) if len(names) > 1 else tf.distribute.OneDeviceStrategy(names[0])
    )


def _model_of(device: Any) -> str:
    if device.device_type == "CPU":
        return f"CPU {platform.machine()}"
    return str(tf.config.experimental.get_device_details(device).get("device_name", "unknown"))


@contextlib.contextmanager
def _as_data_fault() -> Iterator[None]:
    """Raise failures inside the block as DataFault: their cause is in the data or its storage."""
    try:
        yield
    except (tf.errors.OpError, StopIteration, OSError) as error:
        raise DataFault(_first_line(error)) from error


@contextlib.contextmanager
def _as_device_fault() -> Iterator[None]:
    """Raise failures inside the block as DeviceFault: their cause is in a device, or in another worker."""
    try:
        yield
    except (tf.errors.OpError, RuntimeError) as error:
        raise DeviceFault(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    text = (error.message if isinstance(error, tf.errors.OpError) else str(error)) or type(error).__name__
    return f"{type(error).__name__}: {text.strip().splitlines()[0][:300]}"
