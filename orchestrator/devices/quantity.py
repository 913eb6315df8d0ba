"""Quantities of Kubernetes as exact integers of billionths, the finest unit that Kubernetes keeps."""

import re
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
"""One, in billionths."""
MIB_NANO: Final = (1 << 20) * NANO
"""One MiB in billionths of a byte."""

_MAX_LENGTH: Final = 64
_MAX_EXPONENT: Final = 40
_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?"
    r"(?:[eE](?P<exponent>[+-]?\d{1,9})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class NotAQuantity(ValueError):
    """The text is not a valid quantity of Kubernetes."""


@lru_cache(maxsize=4096)
def parse_nano(text: str) -> int:
    """Return the quantity in billionths, rounded away from zero. Raises NotAQuantity."""
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None or not (match["whole"] or match["part"]):
        raise NotAQuantity(f"{text[:_MAX_LENGTH]!r} is not a quantity")
    part = match["part"] or ""
    number, divisor = int(match["whole"] + part), 10 ** len(part)
    suffix = match["suffix"] or ""
    if suffix in _BINARY:
        number <<= _BINARY[suffix]
    else:
        exponent = int(match["exponent"] or _DECIMAL[suffix])
        exponent = max(-_MAX_EXPONENT, min(exponent, _MAX_EXPONENT))
        if exponent >= 0:
            number *= 10**exponent
        else:
            divisor *= 10**-exponent
    nano: int = -(-number * NANO // divisor)
    return -nano if match["sign"] == "-" else nano


def whole(nano: int) -> int:
    """Return the quantity as a whole number, rounded up.

    Example: `whole(1500000000)` returns `2`.
    """
    return -(-nano // NANO)


def format_nano(nano: int) -> str:
    """Return the quantity as text: with a binary suffix if one fits, with a decimal suffix if it is not a whole number.

    Example: `format_nano(1500000000)` returns `'1500m'`.
    """
    if nano % NANO:
        for suffix, unit in (("m", 10**6), ("u", 10**3), ("n", 1)):
            if nano % unit == 0:
                return f"{nano // unit}{suffix}"
    number = nano // NANO
    for suffix, bits in reversed(_BINARY.items()):
        if number and number % (1 << bits) == 0:
            return f"{number >> bits}{suffix}"
    return str(number)
