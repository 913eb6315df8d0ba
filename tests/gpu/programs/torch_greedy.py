"""PyTorch that reaches its limit again and again: `torch_greedy SECONDS`."""

import sys
import time

import torch

from tests.gpu.programs.steps import MIB, fill, step


def main() -> None:
    """Report the number of failed allocations, and that PyTorch still computes."""
    _, total = torch.cuda.mem_get_info()
    torch.ones(16, device="cuda").sum().item()
    step("warm", total_bytes=total)
    end, refused, fewest = time.monotonic() + float(sys.argv[1]), 0, total
    while time.monotonic() < end:
        blocks, error = fill(
            lambda: torch.empty(1024 * MIB, dtype=torch.uint8, device="cuda").fill_(1),
            (torch.OutOfMemoryError,),
            total // (1024 * MIB) + 2,
        )
        refused += bool(error)
        fewest = min(fewest, len(blocks) * 1024 * MIB)
        blocks.clear()
        torch.cuda.empty_cache()
    ones = torch.ones(1024, 1024, device="cuda")
    step("refused", times=refused, fewest_bytes=fewest, is_right=bool((ones @ ones == 1024).all()))


if __name__ == "__main__":
    main()
