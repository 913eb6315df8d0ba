"""Repeats exact matrix products and an exact training step on each GPU, and prints digests of all results in one line.

A pod runs the text of this file with `python3 -c`, so the file imports nothing of muster and runs on Python 3.10.

All numbers are integers of at most 2**24 in float32, and of at most 2**11 in float16. Every sum of them is exact, so a
result does not depend on the order of summation. Each device must have the digests of the exact results.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

MATRIX_BOUND: Final = 127
HALF_BOUND: Final = 3
"""With it, each sum of some products of an element is at most 2,048: `half` is exact in float16, in any order."""
STEPS: Final = 3
CHILD_SECONDS: Final = 900
"""Maximum time for one GPU: a library needs some seconds to start, all repeats some seconds more."""
MAX_NAME_LENGTH: Final = 100
MAX_PROBLEM_LENGTH: Final = 300


class Sizes:
    """The sizes of the computations.

    `product` are rows, inner size and columns; `training` are batch, inputs, hidden and outputs.
    """

    def __init__(self, product: tuple[int, int, int], training: tuple[int, int, int, int]) -> None:
        self.product = product
        self.training = training

    def bound(self) -> int:
        """Return the largest possible absolute value of all sums in float32."""
        batch, inputs, hidden, outputs = self.training
        weight = (
            STEPS  # the largest weight of the last step: each earlier step adds at most 1 to a weight of 1
        )
        activation = inputs * weight
        passed_back = outputs * weight
        sums = (hidden * activation * weight + MATRIX_BOUND, batch * activation, batch * passed_back)
        return max(self.product[1] * MATRIX_BOUND**2, *sums)


GPU: Final = Sizes((4096, 1024, 4096), (4096, 512, 1024, 256))
CPU: Final = Sizes((24, 24, 24), (16, 16, 16, 8))


class Library(Protocol):
    """Matrices of a library. `version`, `model` and `uuid` are those of the library and the device."""

    version: str
    model: str
    uuid: str

    def matrix(self, rows: int, columns: int, content: bytes, *, half: bool) -> Any:
        """Return a matrix of the signed bytes in `content`, in float16 or float32."""

    def product(self, left: Any, right: Any) -> Any:
        """Return the matrix product."""

    def transposed(self, matrix: Any) -> Any:
        """Return the transposed matrix."""

    def minus(self, left: Any, right: Any) -> Any:
        """Return the difference."""

    def times(self, left: Any, right: Any) -> Any:
        """Return the products of the elements in each row and column."""

    def sign(self, matrix: Any) -> Any:
        """Return -1, 0 or 1 for each element."""

    def positive(self, matrix: Any) -> Any:
        """Return the matrix with 0 in place of each negative element."""

    def content(self, matrix: Any) -> bytes:
        """Return the bytes of all elements in float32, with 0 in place of -0."""


class Plain:
    """Matrices as lists of rows, on the processor, without any library."""

    def __init__(self) -> None:
        self.version = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        self.model, self.uuid = "CPU " + os.uname().machine, ""

    def matrix(self, rows: int, columns: int, content: bytes, *, half: bool) -> Any:  # noqa: ARG002 - its results are exact in float16, too
        """Return a matrix of the signed bytes in `content`."""
        values = [float(value) for value in array("b", content)]
        return [values[row * columns : (row + 1) * columns] for row in range(rows)]

    def product(self, left: Any, right: Any) -> Any:
        """Return the matrix product."""
        columns = list(zip(*right, strict=True))
        return [[sum(map(float.__mul__, row, column)) for column in columns] for row in left]

    def transposed(self, matrix: Any) -> Any:
        """Return the transposed matrix."""
        return [list(column) for column in zip(*matrix, strict=True)]

    def minus(self, left: Any, right: Any) -> Any:
        """Return the difference."""
        return [
            [one - other for one, other in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)
        ]

    def times(self, left: Any, right: Any) -> Any:
        """Return the products of the elements in each row and column."""
        return [
            [one * other for one, other in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)
        ]

    def sign(self, matrix: Any) -> Any:
        """Return -1, 0 or 1 for each element."""
        return [[float((value > 0) - (value < 0)) for value in row] for row in matrix]

    def positive(self, matrix: Any) -> Any:
        """Return the matrix with 0 in place of negative elements."""
        return [[max(value, 0.0) for value in row] for row in matrix]

    def content(self, matrix: Any) -> bytes:
        """Return the bytes of all elements."""
        return b"".join(array("f", [value + 0.0 for value in row]).tobytes() for row in matrix)


class _Tensors:
    """Operations that PyTorch and TensorFlow share."""

    def minus(self, left: Any, right: Any) -> Any:
        """Return the difference."""
        return left - right

    def times(self, left: Any, right: Any) -> Any:
        """Return the products of the elements in each row and column."""
        return left * right


class PyTorch(_Tensors):
    """Matrices as tensors of PyTorch, on the only GPU of this process, or on the processor."""

    def __init__(self, kind: str) -> None:
        import torch  # noqa: PLC0415 - the image may not have it

        if kind == "gpu" and not torch.cuda.is_available():
            raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU")
        self._torch = torch
        self._device = "cuda:0" if kind == "gpu" else "cpu"
        self.version = f"PyTorch {torch.__version__}"
        plain = Plain()
        self.model, self.uuid = plain.model, plain.uuid
        torch.use_deterministic_algorithms(True)
        if kind == "gpu":
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            properties = torch.cuda.get_device_properties(0)
            uuid = str(getattr(properties, "uuid", ""))  # since PyTorch 2.4
            self.version += f", CUDA {torch.version.cuda}"
            self.model = properties.name
            self.uuid = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid

    def matrix(self, rows: int, columns: int, content: bytes, *, half: bool) -> Any:
        """Return a matrix of the signed bytes in `content`."""
        torch = self._torch
        bytes_of_rows = torch.frombuffer(bytearray(content), dtype=torch.int8).reshape(rows, columns)
        return bytes_of_rows.to(self._device).to(torch.float16 if half else torch.float32)

    def product(self, left: Any, right: Any) -> Any:
        """Return the matrix product."""
        return self._torch.matmul(left, right)

    def transposed(self, matrix: Any) -> Any:
        """Return the transposed matrix."""
        return matrix.t().contiguous()

    def sign(self, matrix: Any) -> Any:
        """Return -1, 0 or 1 for each element."""
        return self._torch.sign(matrix)

    def positive(self, matrix: Any) -> Any:
        """Return the matrix with 0 in place of negative elements."""
        return self._torch.relu(matrix)

    def content(self, matrix: Any) -> bytes:
        """Return the bytes of all elements."""
        here = (matrix + 0.0).float().cpu().contiguous()
        return ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())


class TensorFlow(_Tensors):
    """Matrices as tensors of TensorFlow, on the only GPU of this process, or on the processor."""

    def __init__(self, kind: str) -> None:
        import tensorflow  # noqa: PLC0415 - the image may not have it

        self._tf = tensorflow
        self.version = f"TensorFlow {tensorflow.__version__}"
        plain = Plain()
        self.model, self.uuid = plain.model, plain.uuid
        if kind == "gpu":
            devices = tensorflow.config.list_physical_devices("GPU")
            if not devices:
                raise RuntimeError(f"{self.version} sees no GPU")
            details = tensorflow.config.experimental.get_device_details(devices[0])
            self.model = str(details.get("device_name", ""))
        tensorflow.config.experimental.enable_op_determinism()
        tensorflow.config.experimental.enable_tensor_float_32_execution(False)

    def matrix(self, rows: int, columns: int, content: bytes, *, half: bool) -> Any:
        """Return a matrix of the signed bytes in `content`."""
        tf = self._tf
        flat = tf.io.decode_raw(tf.constant(content), tf.int8)
        return tf.cast(tf.reshape(flat, (rows, columns)), tf.float16 if half else tf.float32)

    def product(self, left: Any, right: Any) -> Any:
        """Return the matrix product."""
        return self._tf.linalg.matmul(left, right)

    def transposed(self, matrix: Any) -> Any:
        """Return the transposed matrix."""
        return self._tf.transpose(matrix)

    def sign(self, matrix: Any) -> Any:
        """Return -1, 0 or 1 for each element."""
        return self._tf.sign(matrix)

    def positive(self, matrix: Any) -> Any:
        """Return the matrix with 0 in place of negative elements."""
        return self._tf.nn.relu(matrix)

    def content(self, matrix: Any) -> bytes:
        """Return the bytes of all elements."""
        return bytes(self._tf.cast(matrix + 0.0, self._tf.float32).numpy().tobytes())


def integers(name: str, count: int, bound: int) -> bytes:
    """Return `count` signed bytes from -bound to bound, always the same ones for a name."""
    of_byte = bytes((byte % (2 * bound + 1) - bound) % 256 for byte in range(256))
    return hashlib.shake_128(name.encode()).digest(count).translate(of_byte)


def product(library: Library, sizes: Sizes, *, half: bool) -> str:
    """Return the SHA-256 of all bits of a matrix product."""
    rows, inner, columns = sizes.product
    bound = HALF_BOUND if half else MATRIX_BOUND
    left = library.matrix(rows, inner, integers("left", rows * inner, bound), half=half)
    right = library.matrix(inner, columns, integers("right", inner * columns, bound), half=half)
    return hashlib.sha256(library.content(library.product(left, right))).hexdigest()


def training(library: Library, sizes: Sizes) -> str:
    """Return the SHA-256 of all bits of activations, gradients and weights in some training steps.

    The network has two layers with ReLU between them. Its loss is the sum of absolute errors, and a step changes each
    weight by the sign of its gradient. So all values stay small integers.
    """
    batch, inputs, hidden, outputs = sizes.training
    images = library.matrix(batch, inputs, integers("images", batch * inputs, 1), half=False)
    targets = library.matrix(batch, outputs, integers("targets", batch * outputs, MATRIX_BOUND), half=False)
    first = library.matrix(inputs, hidden, integers("first", inputs * hidden, 1), half=False)
    second = library.matrix(hidden, outputs, integers("second", hidden * outputs, 1), half=False)
    digest = hashlib.sha256()
    for _ in range(STEPS):
        active = library.positive(library.product(images, first))
        output = library.product(active, second)
        error = library.sign(library.minus(output, targets))
        passed_back = library.times(library.product(error, library.transposed(second)), library.sign(active))
        of_second = library.product(library.transposed(active), error)
        of_first = library.product(library.transposed(images), passed_back)
        first = library.minus(first, library.sign(of_first))
        second = library.minus(second, library.sign(of_second))
        for matrix in (active, output, passed_back, of_first, of_second, first, second):
            digest.update(library.content(matrix))
    return digest.hexdigest()


def measure(library: Library, sizes: Sizes, repeats: int) -> dict[str, dict[str, int]]:
    """Return the digests of each computation, with the number of repeats that had each of them."""
    computations: dict[str, Callable[[], str]] = {
        "product": lambda: product(library, sizes, half=False),
        "half": lambda: product(library, sizes, half=True),
        "training": lambda: training(library, sizes),
    }
    return {name: dict(Counter(compute() for _ in range(repeats))) for name, compute in computations.items()}


def chosen_library(kind: str) -> Library:
    """Return the library of the image for devices of this kind. Raises RuntimeError without one."""
    if importlib.util.find_spec("torch"):
        return PyTorch(kind)
    if importlib.util.find_spec("tensorflow"):
        return TensorFlow(kind)
    if kind == "cpu":
        return Plain()
    raise RuntimeError("the image has neither PyTorch nor TensorFlow")


def measure_device(kind: str, number: int, repeats: int) -> dict[str, Any]:
    """Return the entry of one device. This process must not have used a GPU before."""
    if kind == "gpu":
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = str(number)
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # an image may have set it to another value
    library = chosen_library(kind)
    return {
        "uuid": library.uuid,
        "model": library.model,
        "library": library.version,
        "digests": measure(library, GPU if kind == "gpu" else CPU, repeats),
    }


def report_device(pipe: Connection, kind: str, number: int, repeats: int) -> None:
    """Send the entry of one device, or its problem."""
    try:
        entry = measure_device(kind, number, repeats)
    except Exception as error:  # any error of a library is the problem of the device
        entry = {"problem": f"{type(error).__name__}: {error}"}
    pipe.send(entry)


def in_child(kind: str, number: int, repeats: int) -> dict[str, Any]:
    """Return the entry of one device from a process of its own, because an error of CUDA ends its process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=report_device, args=(theirs, kind, number, repeats))
    child.start()
    theirs.close()
    try:
        entry: dict[str, Any] = {"problem": f"no result after {CHILD_SECONDS} s"}
        if ours.poll(CHILD_SECONDS):
            entry = ours.recv()
    except EOFError:
        child.join()
        entry = {"problem": f"its process ended with exit code {child.exitcode}"}
    finally:
        child.kill()
        child.join(10)
    return entry


def uuids() -> dict[str, str]:
    """Return the UUIDs of the GPUs by index, as nvidia-smi prints them; empty without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        text = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [line.split(",") for line in text.splitlines()]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}


def bounded(text: str, length: int) -> str:
    """Return the text in one line of at most this length, with a question mark for each character beyond ASCII."""
    words = " ".join(text.split())
    return "".join(letter if " " <= letter <= "~" else "?" for letter in words)[:length]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the document of all devices of this pod as the last line of the output."""
    parser = argparse.ArgumentParser(
        description="Repeat exact computations and print digests of the results."
    )
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--num_devices", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--least_seconds", type=float, default=0)
    options = parser.parse_args(argv)
    began = time.monotonic()
    names = uuids() if options.device == "gpu" else {}
    devices = []
    for number in range(options.num_devices):
        entry: dict[str, Any] = {
            "index": number,
            "uuid": "",
            "model": "",
            "library": "",
            "digests": {},
            "problem": "",
        }
        entry.update(in_child(options.device, number, options.repeats))
        entry["uuid"] = entry["uuid"] or names.get(str(number), "")
        for name in ("uuid", "model", "library"):
            entry[name] = bounded(entry[name], MAX_NAME_LENGTH)
        entry["problem"] = bounded(entry["problem"], MAX_PROBLEM_LENGTH)
        devices.append(entry)
    time.sleep(max(0.0, options.least_seconds - (time.monotonic() - began)))
    document = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "DigestsResult",
        "deviceKind": options.device,
        "repeats": options.repeats,
        "devices": devices,
    }
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
