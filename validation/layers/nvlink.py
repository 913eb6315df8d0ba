"""Reads `nvidia-smi nvlink -s`, `nvidia-smi topo -m`, and whether the fabric manager runs."""

import re
from typing import Final

from validation.errors import LayerError

_GPU: Final = re.compile(r"GPU (\d+): ")
_LINK: Final = re.compile(r"\s+Link (\d+): (.+)")
_RATE: Final = re.compile(r"[\d.]+ GB/s")
_ROW: Final = re.compile(r"GPU\d+\s")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")


def read_links(text: str) -> dict[int, dict[int, bool]]:
    """By GPU and link whether it is active: only one with a rate is. Raises LayerError if no GPU is described."""
    gpus: dict[int, dict[int, bool]] = {}
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpus[int(match[1])] = {}
        elif gpus and (match := _LINK.match(line)):
            gpus[max(gpus)][int(match[1])] = bool(_RATE.fullmatch(match[2].strip()))
    if not gpus:
        raise LayerError(f"nvidia-smi nvlink: no GPU in its output: {text.strip()[:100]!r}")
    return gpus


def read_topology(text: str) -> dict[str, list[str]]:
    """By GPU how it is connected with each GPU, in their order. Raises LayerError if there is no matrix."""
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    rows = {words[0]: words[1:] for line in lines if _ROW.match(line) and (words := line.split())}
    if not rows:
        raise LayerError(f"nvidia-smi topo: no matrix in its output: {text.strip()[:100]!r}")
    return {gpu: cells[: len(rows)] for gpu, cells in rows.items()}


def read_service(text: str) -> str:
    """What `systemctl is-active` says of the service. Raises LayerError if that is no state."""
    state = text.strip()
    if not re.fullmatch(r"[a-z-]+", state):
        raise LayerError(f"systemctl: no state of a service: {state[:100]!r}")
    return state
