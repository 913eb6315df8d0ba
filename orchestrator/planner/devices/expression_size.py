"""How large the values of an expression can become, from its text alone: before anything is evaluated.

The library bounds iterations and depth, but not what a value takes: `x + x`, bound to a name and added up again, and so
on, fills the memory in a few hundred characters. The API server refuses such selectors by an estimate of their cost;
this is a second line, coarse and on the safe side: expressions that people write come to some thousands.
"""

import re
from typing import Final

MAX_SIZE: Final = 20_000_000
"""Characters and elements."""

_ATTRIBUTE_LENGTH: Final = 64
"""Of the longest value that a driver may publish."""
_LITERAL: Final = re.compile(
    r"""(?s)[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
)
_NAMES: Final = re.compile(r"\b(?:bind|map|filter|all|exists|exists_one|optMap|optFlatMap)\s*\(")
_CALLS: Final = re.compile(r"\b(\w+)\s*\(")
_SEPARATORS: Final = {"bind": 2, "map": 1, "filter": 1, "all": 1, "exists": 1, "exists_one": 1, "replace": 1}
"""Commas that these need for themselves."""
_GROWING: Final = re.compile(r"\b(?:replace|join|format|quote)\s*\(")


def largest_size(expression: str) -> int:
    """Return a bound for the size of any value in the expression, at most a little more than MAX_SIZE.

    Each name that is bound can repeat what came before as often as operators and commas are left for it; functions
    that write strings multiply by the longest one.
    """
    literals = [len(match[0]) for match in _LITERAL.finditer(expression)]
    code = _LITERAL.sub("''", expression)
    longest = max(_ATTRIBUTE_LENGTH, *literals, 0)
    names = max(1, len(_NAMES.findall(code)))
    separators = sum(_SEPARATORS.get(name, 0) for name in _CALLS.findall(code))
    repeats, more = divmod(code.count("+") + max(0, code.count(",") - separators), names)
    factors = [repeats + 2] * more + [repeats + 1] * (names - more) + [longest] * len(_GROWING.findall(code))
    size = longest
    for factor in factors:
        size *= factor
        if size > MAX_SIZE:
            break
    return size
