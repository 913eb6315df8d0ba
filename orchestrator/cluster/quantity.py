"""Kubernetes quantities and timestamps as exact integers, with the unit in each name.

Amounts are rounded here alone, always up, so a workload never gets less than it requests. GPUs and fractions are in
`gpu_fraction`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

_SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_BYTE_UNITS: Final = {suffix: int(factor) for suffix, factor in _SUFFIXES.items() if factor >= 1000}
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII
)
MAX_QUANTITY: Final = (1 << 63) - 1
"""The API server reduces larger quantities to this one, so no stored quantity is larger."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4096)
def _decimal(quantity: str) -> Decimal:
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{shortened(quantity)} is no Kubernetes quantity; write it like 500m, 2 or 512Gi")
    number, exponent, suffix = match.groups()
    return Decimal(number + (exponent or "")) * _SUFFIXES[suffix or ""]


def shortened(text: str, most: int = 60) -> str:
    """Return the text in quotes. A long text is cut, because texts of users can be very long.

    Example: `shortened("x" * 100, 3)` returns `"'xxx' and 97 characters more"`.
    """
    return repr(text) if len(text) <= most else f"{text[:most]!r} and {len(text) - most} characters more"


def _rounded_up(value: Decimal) -> int:
    if abs(value) > MAX_QUANTITY:
        raise ValueError(f"{value:.3E} is more than a Kubernetes quantity can be")
    return int(value.to_integral_value(rounding=ROUND_CEILING))


@lru_cache(maxsize=4096)
def memory_bytes(quantity: str) -> int:
    """Return a quantity of memory or storage in bytes, rounded up.

    Raises ValueError if it is not a quantity.
    """
    return _rounded_up(_decimal(quantity))


def memory_mib(quantity: str) -> int:
    """Return a quantity of memory in MiB, rounded up. Raises ValueError if it is not a quantity.

    Example: `memory_mib("1500Ki")` returns `2`.
    """
    return -(-memory_bytes(quantity) // (1 << 20))


@lru_cache(maxsize=4096)
def cpu_milli(quantity: str) -> int:
    """Return a quantity of CPU in thousandths of a core, rounded up.

    Raises ValueError if it is not a quantity.
    """
    return _rounded_up(_decimal(quantity) * 1000)


@lru_cache(maxsize=4096)
def thousandths(quantity: str) -> int:
    """Return a quantity of any resource in thousandths of its unit, rounded up.

    Raises ValueError if it is not a quantity.
    """
    value = _decimal(quantity)
    _rounded_up(value)  # raises if the value is above MAX_QUANTITY
    return int((value * 1000).to_integral_value(rounding=ROUND_CEILING))


@lru_cache(maxsize=4096)
def whole_count(quantity: str) -> int:
    """Return a quantity of whole things, such as pods or devices: `110`, or `1k` as the API server writes 1000.

    Raises ValueError if it is not a quantity, negative, or not a whole number.
    """
    value = _decimal(quantity)
    if value < 0 or value > MAX_QUANTITY or value != value.to_integral_value():
        raise ValueError(f"{shortened(quantity)} is no whole number of things")
    return int(value)


def format_cpu(cpu_milli: int) -> str:
    """Return thousandths of a core as Kubernetes writes them: `2`, `500m`.

    Example: `format_cpu(1500)` returns `'1500m'`.
    """
    return f"{cpu_milli}m" if cpu_milli % 1000 else str(cpu_milli // 1000)


def format_bytes(size_bytes: int) -> str:
    """Return bytes exactly, in the unit that makes the shortest text: `4G`, `512Mi`, `1000000001`.

    Example: `format_bytes(536870912)` returns `'512Mi'`.
    """
    spellings = [
        f"{size_bytes // unit}{suffix}"
        for suffix, unit in _BYTE_UNITS.items()
        if size_bytes and size_bytes % unit == 0
    ]
    return min([str(size_bytes), *spellings], key=len)


def parse_time(timestamp: str) -> int:
    """Return an RFC 3339 timestamp in microseconds since the epoch; finer parts are cut off.

    Raises ValueError if it is not a timestamp or has no time zone.

    Example: `parse_time("1970-01-01T01:00:00+00:30")` returns `1800000000`.
    """
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError as error:
        raise ValueError(f"{shortened(timestamp)} is no RFC 3339 timestamp") from error
    if moment.tzinfo is None:
        raise ValueError(f"{shortened(timestamp)} has no time zone; RFC 3339 needs one, Z for UTC")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def time_us(timestamp: str | None) -> int:
    """Return a timestamp of the API in microseconds; 0 if it is absent or cannot be read."""
    try:
        return parse_time(timestamp) if timestamp else 0
    except ValueError:
        return 0


def format_time(microseconds: int, *, places: int = 6) -> str:
    """Return microseconds since the epoch as RFC 3339 in UTC, with `places` decimal places of a second: 6 or 0.

    Example: `format_time(1500000)` returns `'1970-01-01T00:00:01.500000Z'`.
    """
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if places else "%Y-%m-%dT%H:%M:%SZ")
