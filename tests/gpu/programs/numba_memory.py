"""Numba fills its fraction, an allocation fails, and it runs a kernel."""

from typing import Any

import numba
import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

from tests.gpu.programs.steps import MIB, fill, step

PIECE_BYTES = 64 * MIB


def row_stack(arrays: Any, **options: Any) -> Any:
    """A function that NumPy 2.5 removed and numba-cuda 0.30 still uses: github.com/NVIDIA/numba-cuda/issues/907."""
    return np.vstack(arrays, **options)


vars(np).setdefault("row_stack", row_stack)


@cuda.jit  # type: ignore[untyped-decorator,unused-ignore]
def add_one(values):  # type: ignore[no-untyped-def]
    """Add one to every value."""
    index = cuda.grid(1)
    if index < values.size:
        values[index] += 1


def main() -> None:
    """Report the total, a full fraction, and that a kernel runs after it."""
    info = cuda.current_context().get_memory_info()
    step("start", free_bytes=int(info.free), total_bytes=int(info.total), version=numba.__version__)
    blocks, error = fill(
        lambda: cuda.device_array(PIECE_BYTES, dtype=np.uint8),
        (CudaAPIError,),
        2 * int(info.total) // PIECE_BYTES,
    )
    step("full", allocated_bytes=len(blocks) * PIECE_BYTES, error=error)
    blocks.clear()
    values = cuda.to_device(np.zeros(1024, dtype=np.int32))
    add_one[4, 256](values)
    step("worked", is_right=bool((values.copy_to_host() == 1).all()))


if __name__ == "__main__":
    main()
