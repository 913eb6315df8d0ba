"""Connects the GPUs of a group of hosts by NCCL. It runs on each host as `python3 -c`, with the standard library alone.

Arguments: number of the test, index of this host, number of hosts, GPUs of each host. Then address and port of the
first host, time limit in seconds, size of a buffer in bytes.

NCCL reads the address from NCCL_COMM_ID, so no launcher such as mpirun is needed. Without NCCL or a driver it ends with
127. At its time limit it ends by SIGALRM.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

INT32, SUM = 2, 0  # ncclInt32 and ncclSum of nccl.h
WARM_UP, ROUNDS, BLOCK_BYTES = 5, 20, 1 << 20


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`, which NCCL takes by value."""

    _fields_ = (("internal", ctypes.c_char * 128),)


def check(code: int) -> None:
    """End the program if a call of NCCL or of the driver returned an error."""
    if code:
        sys.exit(f"all-reduce: error {code}, called from line {sys._getframe(1).f_lineno}")  # noqa: SLF001


def load(name: str) -> ctypes.CDLL:
    """Load a library. If it is missing, end with the exit code of a missing program."""
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(127)


class Gpu:
    """A GPU with its stream, its communicator and two buffers of 32-bit numbers."""

    def __init__(self, cuda: ctypes.CDLL, number: int, size: int) -> None:
        """Take the primary context, as the runtime inside NCCL does."""
        self.cuda, self.size = cuda, ctypes.c_size_t(size // 4)
        self.context, self.stream, self.comm = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.sent, self.received = ctypes.c_uint64(), ctypes.c_uint64()
        device = ctypes.c_int()
        check(cuda.cuDeviceGet(ctypes.byref(device), number))
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.use()
        check(cuda.cuStreamCreate(ctypes.byref(self.stream), 0))
        for buffer in (self.sent, self.received):
            check(cuda.cuMemAlloc_v2(ctypes.byref(buffer), ctypes.c_size_t(size)))

    def use(self) -> None:
        """Make this the GPU of the next calls."""
        check(self.cuda.cuCtxSetCurrent(self.context))

    def fill(self, value: int) -> None:
        """Put a number into the buffer to send, and zeros into the other."""
        self.use()
        for buffer, content in ((self.sent, value), (self.received, 0)):
            check(self.cuda.cuMemsetD32_v2(buffer, ctypes.c_uint(content), self.size))
        check(self.cuda.cuCtxSynchronize())

    def read(self, offset: int, size: int) -> bytes:
        """Return a part of the received numbers."""
        self.use()
        block = ctypes.create_string_buffer(size)
        source = ctypes.c_uint64(self.received.value + offset)
        check(self.cuda.cuMemcpyDtoH_v2(block, source, ctypes.c_size_t(size)))
        return block.raw


def together(nccl: ctypes.CDLL, gpus: list[Gpu], begin: Callable[[int, Gpu], None], rounds: int = 1) -> None:
    """Begin calls on all GPUs, each round as one group of NCCL, then wait until they are done."""
    for _ in range(rounds):
        check(nccl.ncclGroupStart())
        for number, gpu in enumerate(gpus):
            gpu.use()
            begin(number, gpu)
        check(nccl.ncclGroupEnd())
    for gpu in gpus:
        gpu.use()
        check(gpu.cuda.cuStreamSynchronize(gpu.stream))


def main(index: int, hosts: int, count: int, seconds: int, size: int) -> None:
    """Exchange a number along each rail with each other host, then measure all-reduce and check each value."""
    signal.alarm(seconds)
    cuda, nccl = load("libcuda.so.1"), load("libnccl.so.2")
    check(cuda.cuInit(0))
    gpus, unique, ranks = [Gpu(cuda, number, size) for number in range(count)], UniqueId(), hosts * count
    check(nccl.ncclGetUniqueId(ctypes.byref(unique)))

    def join(number: int, gpu: Gpu) -> None:
        check(nccl.ncclCommInitRank(ctypes.byref(gpu.comm), ranks, unique, index * count + number))

    def exchange(number: int, gpu: Gpu) -> None:
        for host in range(hosts):
            peer, place = host * count + number, ctypes.c_uint64(gpu.received.value + 4 * host)
            one = ctypes.c_size_t(1)
            check(nccl.ncclSend(gpu.sent, one, INT32, peer, gpu.comm, gpu.stream))
            check(nccl.ncclRecv(place, one, INT32, peer, gpu.comm, gpu.stream))

    def reduce(_number: int, gpu: Gpu) -> None:
        check(nccl.ncclAllReduce(gpu.sent, gpu.received, gpu.size, INT32, SUM, gpu.comm, gpu.stream))

    together(nccl, gpus, join)
    for gpu in gpus:
        gpu.fill(index + 1)
    together(nccl, gpus, exchange)
    expected = b"".join((host + 1).to_bytes(4, "little") for host in range(hosts))
    wrong = sum(gpu.read(0, 4 * hosts) != expected for gpu in gpus)
    for gpu in gpus:
        gpu.fill(1)
    together(nccl, gpus, reduce, WARM_UP)
    started = time.monotonic()
    together(nccl, gpus, reduce, ROUNDS)
    rate = 2 * (ranks - 1) * size * ROUNDS / ranks / (time.monotonic() - started)
    expected = ranks.to_bytes(4, "little") * (BLOCK_BYTES // 4)
    wrong += sum(
        gpu.read(at, BLOCK_BYTES) != expected
        for gpu in gpus
        for at in range(0, size - BLOCK_BYTES + 1, BLOCK_BYTES)
    )
    together(nccl, gpus, reduce)  # a barrier: no host ends before all hosts have reached this line
    print(f"all-reduce: {hosts} hosts, {ranks} GPUs, {size} bytes, {int(rate / 10**6)} MB/s, {wrong} wrong")
    sys.stdout.flush()
    for gpu in gpus:
        gpu.use()
        check(nccl.ncclCommDestroy(gpu.comm))


if __name__ == "__main__":
    os.environ["NCCL_COMM_ID"] = sys.argv[5]
    main(*(int(word) for word in (*sys.argv[2:5], *sys.argv[6:8])))
