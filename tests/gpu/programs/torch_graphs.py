"""PyTorch captures a CUDA graph that allocates, replays it, and captures one that is too large.

If an operation of PyTorch itself broke the refused capture, PyTorch cannot capture again in that process, as
https://github.com/pytorch/pytorch/pull/187795 describes for one such operation. The last step has its answer.
"""

import torch

from tests.gpu.programs.steps import MIB, step


def capture(bytes_: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Return a graph that allocates this many bytes and fills them, and the filled tensor."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        block = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
        block.fill_(7)
    return graph, block


def main() -> None:
    """Report the graph, the refused one, and that another graph and normal work succeed after it."""
    _, total = torch.cuda.mem_get_info()
    torch.ones(16, device="cuda").sum().item()
    step(
        "start",
        total_bytes=total,
        free_bytes=torch.cuda.mem_get_info()[0],
        backend=torch.cuda.get_allocator_backend(),
    )
    graph, block = capture(512 * MIB)
    step("captured", free_bytes=torch.cuda.mem_get_info()[0])
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    right = int(block[0]) == 7 and int(block[-1]) == 7
    step("replayed", is_right=right, free_bytes=torch.cuda.mem_get_info()[0])
    error = ""
    try:
        capture(total + 1)
    # OutOfMemoryError is a RuntimeError, and so is the error of a broken capture
    except RuntimeError as caught:
        error = f"{type(caught).__name__}: {str(caught)[:300]}"
    step("refused", error=error, free_bytes=torch.cuda.mem_get_info()[0])
    block.zero_()
    graph.replay()
    torch.cuda.synchronize()
    step("worked", is_right=int(block[-1]) == 7, free_bytes=torch.cuda.mem_get_info()[0])
    error, is_right = "", False
    try:
        again, other = capture(64 * MIB)
        again.replay()
        torch.cuda.synchronize()
        is_right = int(other[-1]) == 7
    except RuntimeError as caught:
        error = f"{type(caught).__name__}: {str(caught)[:300]}"
    step("again", error=error, is_right=is_right)


if __name__ == "__main__":
    main()
