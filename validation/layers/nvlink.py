"""Reads `nvidia-smi nvlink -s` and `-e`, `nvidia-smi topo -m`, and whether the fabric manager runs."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts.host_facts import NvLinks, Topology

_GPU: Final = re.compile(r"GPU (\d+): ")
_LINK: Final = re.compile(r"\s+Link (\d+): (.+)")
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT])B/s")
_MBYTES: Final = {"K": 0.001, "M": 1, "G": 1000, "T": 1000_000}
_OFF: Final = frozenset({"<inactive>", "inactive", "Inactive", "Disabled", "Down"})
_ROW: Final = re.compile(r"GPU\d+\s")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")


def read_links(text: str) -> NvLinks:
    """Return the rates by GPU and link, 0 for an inactive link. Raises LayerError if no GPU is described."""
    gpus: dict[int, dict[int, int]] = {}
    unknown = []
    links: dict[int, int] = {}
    for line in text.splitlines():
        if match := _GPU.match(line):
            if int(match[1]) in gpus:
                unknown.append(f"GPU {match[1]} twice")
            links = gpus.setdefault(int(match[1]), {})
        elif gpus and (match := _LINK.match(line)):
            rate = _RATE.fullmatch(match[2].strip())
            if int(match[1]) in links:
                unknown.append(f"{line.strip()} (twice)")
            elif rate is not None:
                links[int(match[1])] = round(float(rate[1]) * _MBYTES[rate[2]])
            elif match[2].strip() in _OFF:
                links[int(match[1])] = 0
            else:
                unknown.append(line.strip())
        elif line.strip():
            unknown.append(line.strip())
    if not gpus:
        raise LayerError(f"nvidia-smi nvlink: no GPU in its output: {text.strip()[:100]!r}")
    return NvLinks(gpus, unknown)


def read_link_errors(text: str) -> dict[str, str]:
    """Return the counts by name, such as `GPU 0 Link 1 Replay Errors`. Raises LayerError if no GPU is described."""
    counts: dict[str, str] = {}
    gpu = ""
    for line in text.splitlines():
        if match := _GPU.match(line):
            gpu = f"GPU {match[1]}"
        elif gpu and (match := re.match(r"\s+Link (\d+): ([^:]+): (.*)", line)):
            counter = f"{gpu} Link {match[1]} {match[2].strip()}"
            counts[counter] = "?" if counter in counts else match[3].strip()
        elif line.strip():
            counts[line.strip()] = "?"
    if not gpu:
        raise LayerError(f"nvidia-smi nvlink: no GPU in its output: {text.strip()[:100]!r}")
    return counts


def read_topology(text: str) -> Topology:
    """Return the connection of each GPU with each device. Raises LayerError if there is no matrix, a row is
    incomplete, or two rows have the same GPU.
    """
    lines = [_ESCAPES.sub("", line) for line in text.splitlines()]
    rows = {words[0]: words[1:] for line in lines if _ROW.match(line) and (words := line.split())}
    if len(rows) < sum(_ROW.match(line) is not None for line in lines):
        raise LayerError("nvidia-smi topo: two rows have the same GPU")
    if not rows:
        raise LayerError(f"nvidia-smi topo: no matrix in its output: {text.strip()[:100]!r}")
    header = next((line for line in lines if re.match(r"\s+GPU\d+\b", line)), "")
    columns = header.partition("CPU Affinity")[0].split() or list(rows)
    cut = next((gpu for gpu, cells in rows.items() if len(cells) < len(columns)), None)
    if cut is not None:
        raise LayerError(f"nvidia-smi topo: the row of {cut} has fewer cells than the matrix has columns")
    return Topology(columns, rows)


def read_service(text: str) -> str:
    """Return the state of the service from `systemctl is-active`. Raises LayerError if the text is no state."""
    state = text.strip()
    if not re.fullmatch(r"[a-z-]+", state):
        raise LayerError(f"systemctl: no state of a service: {state[:100]!r}")
    return state
