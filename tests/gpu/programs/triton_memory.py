"""A Triton kernel on tensors of PyTorch, before and after a failed allocation."""

import torch
import triton
import triton.language as tl

from tests.gpu.programs.steps import MIB, fill, step

PIECE_BYTES = 64 * MIB


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def add(one, other, out, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add two vectors."""
    index = tl.program_id(0) * block + tl.arange(0, block)
    mask = index < count
    tl.store(out + index, tl.load(one + index, mask=mask) + tl.load(other + index, mask=mask), mask=mask)


def is_right() -> bool:
    """Return whether the kernel adds correctly."""
    one = torch.arange(10_000, device="cuda", dtype=torch.float32)
    out = torch.empty_like(one)
    add[(triton.cdiv(10_000, 1024),)](one, one, out, 10_000, block=1024)
    return bool((out == 2 * one).all())


def main() -> None:
    """Report the total, a full fraction, and that the kernel runs before and after it."""
    free, total = torch.cuda.mem_get_info()
    step("start", free_bytes=free, total_bytes=total, is_right=is_right(), version=triton.__version__)
    blocks, error = fill(
        lambda: torch.empty(PIECE_BYTES, dtype=torch.uint8, device="cuda"),
        (torch.OutOfMemoryError,),
        2 * total // PIECE_BYTES,
    )
    step("full", allocated_bytes=len(blocks) * PIECE_BYTES, error=error)
    blocks.clear()
    step("worked", is_right=is_right())


if __name__ == "__main__":
    main()
