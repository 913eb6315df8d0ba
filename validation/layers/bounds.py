"""Bounds of the figures that host tools print: no tool counts beyond 64 bits."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from validation.errors import LayerError

T = TypeVar("T")
_MOST: Final = 1 << 64
_DIGITS: Final = 21
_LONG: Final = re.compile(rf"[0-9]{{{_DIGITS},}}(?:[. x].*)?", re.DOTALL)
"""A text that is a number of more digits than a counter of 64 bits has."""


class UnreadableFigure(LayerError):
    """A figure of a host tool is beyond all bounds, so nothing can be said about it."""


def read_bounded(parse: Callable[[str], T], output: str) -> T:
    """Return the parsed output. Raises LayerError; UnreadableFigure if a figure is beyond the bounds.

    Example: a counter of 5,000 digits, or a rate of 1e306 GB/s.
    """
    try:
        value = parse(output)
    except (ArithmeticError, ValueError) as error:  # Python refuses to convert more than 4,300 digits
        raise UnreadableFigure("a figure is not readable") from error
    if not _is_bounded(value):
        raise UnreadableFigure("a figure is not readable")
    return value


def _is_bounded(value: object) -> bool:
    """Return whether all numbers and texts in a parsed output are within the bounds."""
    # no generators: each check reads the figures of all hosts
    if isinstance(value, str):
        return len(value) < _DIGITS or _LONG.fullmatch(value) is None
    if isinstance(value, int | float):
        return abs(value) <= _MOST  # False for inf and nan
    if isinstance(value, Mapping):
        return _are_bounded(value) and _are_bounded(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return _are_bounded(value)
    if isinstance(value, msgspec.Struct):
        return _are_bounded([getattr(value, name) for name in value.__struct_fields__])
    return True


def _are_bounded(values: Iterable[object]) -> bool:
    for value in values:  # noqa: SIM110
        if not _is_bounded(value):
            return False
    return True
