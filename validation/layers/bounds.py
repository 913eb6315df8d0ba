"""Bounds of the figures that host tools print: no tool counts beyond 64 bits."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from validation.errors import LayerError

T = TypeVar("T")
_MOST: Final = 1 << 64
_LONG: Final = re.compile(r"[0-9]{21,}(?:[. x].*)?", re.DOTALL)
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
    if not all(_is_bounded(figure) for figure in _figures(value)):
        raise UnreadableFigure("a figure is not readable")
    return value


def _figures(value: object) -> Iterator[int | float | str]:
    """Yield all numbers and texts in a parsed output."""
    if isinstance(value, int | float | str):
        yield value
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from _figures(key)
            yield from _figures(member)
    elif isinstance(value, list | tuple | set | frozenset):
        for member in value:
            yield from _figures(member)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _figures(getattr(value, name))


def _is_bounded(figure: float | str) -> bool:
    if isinstance(figure, str):
        return _LONG.fullmatch(figure) is None
    return abs(figure) <= _MOST  # False for inf and nan
