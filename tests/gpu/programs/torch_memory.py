"""PyTorch fills its fraction with the allocator in PYTORCH_CUDA_ALLOC_CONF, an allocation fails, and it continues."""

import functools

import torch

from tests.gpu.programs.steps import MIB, fill, step

PIECE_BYTES = 256 * MIB


def free_bytes() -> int:
    """Return the free memory that PyTorch sees."""
    return int(torch.cuda.mem_get_info()[0])


def main() -> None:
    """Report the start, a full fraction, a freed one, pinned memory, and that PyTorch still computes."""
    free, total = torch.cuda.mem_get_info()
    step(
        "start", free_bytes=free, total_bytes=total, backend=torch.cuda.get_allocator_backend(),
        properties_total_bytes=torch.cuda.get_device_properties(0).total_memory, version=torch.__version__,
    )  # fmt: skip
    blocks: list[torch.Tensor] = []
    more: list[torch.Tensor] = []
    allocated, error = 0, ""
    for piece_bytes in (PIECE_BYTES, 2 * MIB):
        allocate = functools.partial(torch.empty, piece_bytes, dtype=torch.uint8, device="cuda")
        more, error = fill(allocate, (torch.OutOfMemoryError,), total // PIECE_BYTES + 200)
        blocks += more
        allocated += len(more) * piece_bytes
    torch.cuda.synchronize()
    segments = torch.cuda.memory_snapshot() if torch.cuda.get_allocator_backend() == "native" else []
    step(
        "full", free_bytes=free_bytes(), allocated_bytes=allocated, error=error,
        reserved_bytes=torch.cuda.memory_reserved(),
        expandable=any(segment.get("is_expandable") for segment in segments),
    )  # fmt: skip
    blocks.clear()
    more.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    step("emptied", free_bytes=free_bytes())
    before = free_bytes()
    pinned = torch.empty(2048 * MIB, dtype=torch.uint8, pin_memory=True)
    step("pinned", is_pinned=pinned.is_pinned(), before_bytes=before, free_bytes=free_bytes())
    ones = torch.ones(1024, 1024, device="cuda")
    step("worked", is_right=bool((ones @ ones == 1024).all()), free_bytes=free_bytes())


if __name__ == "__main__":
    main()
