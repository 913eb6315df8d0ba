"""The data sets of TensorFlow: images of shards from alternating mounts, or one repeated synthetic batch.

An element is (image, label, mount). Each image keeps the number of its mount, so that the result has the number of
trained images of each mount.
"""

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from validation.workloads.resnet50.shards import Shard

CLASSES: Final = 1000
CYCLE_LENGTH: Final = 10
"""Number of files that are read at a time, as in the paper's `--datasets_parallel_interleave_cycle_length`."""
_MEAN: Final = (123.68, 116.78, 103.94)
_SCALE: Final = 58.4
_FEATURES: Final = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def synthetic_batches(batch_size: int, image_size: int, seed: int) -> Any:
    """Return an endless data set that repeats one batch of random images and labels."""
    images = tf.random.stateless_normal([batch_size, image_size, image_size, 3], [seed, 0])
    labels = tf.random.stateless_uniform([batch_size], [seed, 1], 0, CLASSES, tf.int64)
    mounts = tf.zeros([batch_size], tf.int64)
    return tf.data.Dataset.from_tensors((images, labels, mounts)).cache().repeat()


def shard_batches(shards: Sequence[Shard], batch_size: int, image_size: int, seed: int) -> Any:
    """Return an endless data set of batches of the shards' images, with the mounts interleaved."""
    paths = [str(shard.path) for shard in shards]
    mounts = [shard.mount for shard in shards]
    files = tf.data.Dataset.from_tensor_slices((paths, tf.constant(mounts, tf.int64))).repeat()
    records = files.interleave(
        _records, cycle_length=min(CYCLE_LENGTH, len(shards)), num_parallel_calls=tf.data.AUTOTUNE
    )
    images = records.shuffle(16 * batch_size, seed=seed).map(
        lambda content, mount: (*_image(content, image_size), mount), num_parallel_calls=tf.data.AUTOTUNE
    )
    return images.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def _records(path: Any, mount: Any) -> Any:
    return tf.data.TFRecordDataset(path).map(lambda content: (content, mount))


def _image(content: Any, image_size: int) -> tuple[Any, Any]:
    """Return the image at the size of the model, without random distortions, and its class from 0.

    In the file, classes begin at 1.
    """
    example = tf.io.parse_single_example(content, _FEATURES)
    label = example["image/class/label"] - 1
    known = tf.debugging.assert_less(
        tf.cast(label, tf.uint64), tf.constant(CLASSES, tf.uint64), "a label is not from 1 to 1000"
    )
    with tf.control_dependencies([known] if known is not None else []):
        image = tf.io.decode_jpeg(example["image/encoded"], channels=3)
    resized = tf.image.resize(image, [image_size, image_size])
    return (resized - tf.constant(_MEAN)) / _SCALE, label
