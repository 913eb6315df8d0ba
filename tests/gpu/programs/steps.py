"""Common code of these programs: each step is a line of JSON, after which a program waits until it was measured.

Programs run under a Python with PyTorch, JAX and other frameworks, and import nothing else of muster.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

MIB: Final = 1 << 20


def step(name: str, **facts: Any) -> None:
    """Write a step with its facts, and wait for a line."""
    print(json.dumps({"step": name, **facts}), flush=True)
    sys.stdin.readline()


def fill(
    allocate: Callable[[], Any], errors: tuple[type[Exception], ...], most: int
) -> tuple[list[Any], str]:
    """Allocate until an allocation fails, at most `most` times; return the allocations, and
    the error if there was one.
    """
    blocks: list[Any] = []
    while len(blocks) < most:
        try:
            blocks.append(allocate())
        except errors as error:
            return blocks, f"{type(error).__name__}: {str(error)[:300]}"
    return blocks, ""
