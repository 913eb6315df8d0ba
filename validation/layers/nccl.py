"""Reads the output of nccl-tests (`all_reduce_perf`, …), also through mpirun, which puts the rank before each line."""

import math
import re
from typing import Final, NamedTuple

from validation.errors import LayerError
from validation.judge.hosts.host_facts import NcclRow, NcclRun

_TAG: Final = re.compile(r"^\[\d+,\d+\]<\w+>:\s?")
_DEVICE: Final = re.compile(
    r"#\s+Rank\s+\d+ .*?Pid\s+\d+ on\s+(?P<host>\S+) device\s+\d+ \[[^]]+\] (?P<model>.+)"
)
_VERSION: Final = re.compile(r"# nccl-tests version (\S+)")
_TEST: Final = re.compile(r"# Collective test starting: (\S+)")
_BOUNDS: Final = re.compile(r"#\s*Out of bounds values : (\d+) (\S+)")
_ROW: Final = re.compile(r"\d+\s+\d+\s")
_USUAL: Final = ["size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2]


class _Columns(NamedTuple):
    """The positions of the figures in a row.

    Older versions print a maximum error (`has_errors`) instead of the number of wrong values.
    """

    width: int
    bandwidths: list[int]
    wrongs: list[int]
    has_errors: bool


def read_nccl(text: str) -> NcclRun:
    """Return the run. Raises LayerError if there is no row, or a row that cannot be read."""
    lines = [_TAG.sub("", line).strip() for line in text.splitlines()]
    devices = [match for line in lines if (match := _DEVICE.match(line))]
    bounds = next((match for line in lines if (match := _BOUNDS.match(line))), None)
    columns = _columns(lines)
    is_right = bounds is not None and bounds.groups() == ("0", "OK")
    out_of_bounds = int(bounds[1]) if bounds is not None else 0
    rows = [_row(line.split(), columns, is_right=is_right) for line in lines if _ROW.match(line)]
    if not rows:
        raise LayerError("nccl-tests: no row of results")
    return NcclRun(
        version=_first(_VERSION, lines),
        test=_first(_TEST, lines),
        devices=[match["model"] for match in devices],
        hosts=len({match["host"] for match in devices}),
        rows=rows,
        is_whole=bounds is not None and any(line.startswith("# Avg bus bandwidth") for line in lines),
        out_of_bounds=out_of_bounds,
    )


def _columns(lines: list[str]) -> _Columns:
    """Return the columns from the header of the table. Raises LayerError for rates in another unit."""
    names = next((line.split()[1:] for line in lines if re.match(r"#\s+size\s+count\b", line)), _USUAL)
    units = next((line for line in lines if re.match(r"#\s+\(B\)", line)), "(GB/s)")
    if set(re.findall(r"\(\w?B/s\)", units)) != {"(GB/s)"}:
        raise LayerError(f"nccl-tests: rates of an unknown unit: {units[:100]}")
    wrongs = [index for index, name in enumerate(names) if name in {"#wrong", "error"}]
    bandwidths = [index for index, name in enumerate(names) if name == "busbw"]
    if len(bandwidths) != len(wrongs) or not wrongs:
        raise LayerError("nccl-tests: a table without busbw and #wrong")
    return _Columns(len(names), bandwidths, wrongs, "error" in names)


def _row(words: list[str], columns: _Columns, *, is_right: bool) -> NcclRow:
    """Return a row. Raises LayerError if it has other columns than the table."""
    bandwidths = [_rate(words[index]) for index in columns.bandwidths if index < len(words)]
    if len(words) != columns.width or None in bandwidths:
        raise LayerError(f"nccl-tests: this row cannot be read: {' '.join(words)[:100]}")
    if columns.has_errors:
        wrong = 0 if is_right else None
    else:
        counts = [_count(words[index]) for index in columns.wrongs]
        wrong = None if None in counts else sum(count for count in counts if count is not None)
    return NcclRow(int(words[0]), min(rate for rate in bandwidths if rate is not None), wrong)


def _rate(word: str) -> float | None:
    try:
        return float(word) if math.isfinite(float(word)) else None
    except ValueError:
        return None


def _count(word: str) -> int | None:
    """Return the number of wrong values. A large number is printed as 2.68435e+08.

    Example: `_count("2.68435e+08")` returns `268435000`.
    """
    return int(float(word)) if re.fullmatch(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", word) else None


def _first(pattern: re.Pattern[str], lines: list[str]) -> str:
    return next((match[1] for line in lines if (match := pattern.match(line))), "")
