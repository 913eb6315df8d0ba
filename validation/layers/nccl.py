"""Reads what nccl-tests print (`all_reduce_perf`, …), also through mpirun, which puts the rank before each line."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts.host_facts import NcclRow, NcclRun

_TAG: Final = re.compile(r"^\[\d+,\d+\]<\w+>:\s?")
_DEVICE: Final = re.compile(
    r"#\s+Rank\s+\d+ .*?Pid\s+\d+ on\s+(?P<host>\S+) device\s+\d+ \[[^]]+\] (?P<model>.+)"
)
_VERSION: Final = re.compile(r"# nccl-tests version (\S+)")
_TEST: Final = re.compile(r"# Collective test starting: (\S+)")
_COLUMNS: Final = 13
"""Size, count, type, redop, root, and twice time, algbw, busbw and #wrong, which older versions call error."""


def read_nccl(text: str) -> NcclRun:
    """The run. Raises LayerError if there is no row of it."""
    lines = [_TAG.sub("", line).rstrip() for line in text.splitlines()]
    devices = [match for line in lines if (match := _DEVICE.match(line.strip()))]
    rows = [row for line in lines if (row := _row(line.split())) is not None]
    if not rows:
        raise LayerError("nccl-tests: no row of results")
    return NcclRun(
        version=_first(_VERSION, lines),
        test=_first(_TEST, lines),
        devices=[match["model"] for match in devices],
        hosts=len({match["host"] for match in devices}),
        rows=rows,
        is_whole=any(line.strip().startswith("# Avg bus bandwidth") for line in lines),
    )


def _row(words: list[str]) -> NcclRow | None:
    if len(words) != _COLUMNS or not words[0].isdecimal() or not words[1].isdecimal():
        return None
    try:
        bandwidth = min(float(words[7]), float(words[11]))
    except ValueError:
        return None
    wrong = [int(word) for word in (words[8], words[12]) if word.isdecimal()]
    return NcclRow(int(words[0]), bandwidth, sum(wrong) if len(wrong) == 2 else None)


def _first(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((match[1] for line in lines if (match := pattern.match(line.strip()))), "")
