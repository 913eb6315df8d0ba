"""A program with a plain context of the driver, which fills its fraction with cuMemAlloc."""

import sys
from ctypes import byref, c_uint64

from tests.gpu.programs.steps import MIB, step
from tests.gpumemory.cuda import Cuda


def allocate(cuda: Cuda, bytes_: int, pieces: list[int]) -> int:
    """Return the driver's answer, and append an allocated address to `pieces`."""
    pointer = c_uint64()
    answer = cuda.call("cuMemAlloc_v2", byref(pointer), bytes_)
    if answer == 0:
        pieces.append(pointer.value)
    return answer


def main() -> None:
    """Report the context alone, a full fraction, and a freed one."""
    cuda = Cuda()
    free_bytes, total_bytes = cuda.info()
    step("start", free_bytes=free_bytes, total_bytes=total_bytes)
    pieces: list[int] = []
    for piece_bytes in (int(sys.argv[1]) * MIB, 2 * MIB):
        while len(pieces) * 2 * MIB <= 2 * total_bytes and allocate(cuda, piece_bytes, pieces) == 0:
            pass
    allocate(cuda, cuda.free_bytes(), pieces)
    error = allocate(cuda, 1, pieces)
    step("full", free_bytes=cuda.free_bytes(), error=error)
    for piece in pieces:
        cuda.must("cuMemFree_v2", piece)
    step("emptied", free_bytes=cuda.free_bytes())


if __name__ == "__main__":
    main()
