"""CuPy fills its fraction by its own pool and by the driver's pool."""

import cupy

from tests.gpu.programs.steps import MIB, fill, step

PIECE_BYTES = 64 * MIB


def main() -> None:
    """Report the total, a step with the fraction filled by each pool, and that CuPy still computes."""
    free, total = cupy.cuda.runtime.memGetInfo()
    step("start", free_bytes=free, total_bytes=total, version=cupy.__version__)
    errors = (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError)
    most = 2 * total // PIECE_BYTES
    for name, pool in (
        ("own", cupy.get_default_memory_pool()),
        ("async", cupy.cuda.MemoryAsyncPool()),  # this pool returns no memory by itself
    ):
        cupy.cuda.set_allocator(pool.malloc)
        blocks, error = fill(lambda: cupy.empty(PIECE_BYTES, dtype=cupy.uint8), errors, most)
        step(f"full-{name}", allocated_bytes=len(blocks) * PIECE_BYTES, error=error)
        blocks.clear()
        cupy.cuda.runtime.deviceSynchronize()
        pool.free_all_blocks()
        step(f"emptied-{name}", free_bytes=cupy.cuda.runtime.memGetInfo()[0])
    step("worked", is_right=float(cupy.ones(1000).sum()) == 1000)


if __name__ == "__main__":
    main()
