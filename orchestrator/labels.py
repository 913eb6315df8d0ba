"""Parses and evaluates the label expressions in selectors of pods and nodes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
"""The operators of a node selector."""

POD_OPERATORS: Final[tuple[Operator, ...]] = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of a label selector, as a disruption budget has it."""
_OPERATORS: Final[tuple[Operator, ...]] = get_args(Operator)
_INT64_DIGITS: Final = 19
"""Digits of the longest 64-bit integer."""


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One expression of a selector, with an operator that muster knows."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


def requirement_of(
    key: str, operator: str, values: Iterable[str], known: Collection[Operator] = _OPERATORS
) -> LabelRequirement:
    """Return the expression. Raises ValueError if its operator is not in `known`."""
    for each in known:
        if each == operator:
            return LabelRequirement(key, each, tuple(values))
    raise ValueError(
        f"its expression on the label {key[:63]!r} has the operator {operator[:63]!r}; use {', '.join(known)}"
    )


def matches_requirement(labels: Mapping[str, str], requirement: LabelRequirement) -> bool:
    """Return whether the labels match the expression."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)


def _compares(value: str | None, requirement: LabelRequirement) -> bool:
    """Return whether the label is greater (`Gt`) or less (`Lt`) than the value.

    As in Kubernetes, a label or value that is not a 64-bit integer matches nothing.
    """
    if value is None or len(requirement.values) != 1:
        return False
    actual, bound = _int64(value), _int64(requirement.values[0])
    if actual is None or bound is None:
        return False
    return actual > bound if requirement.operator == "Gt" else actual < bound


def _int64(text: str) -> int | None:
    """Return the 64-bit integer that `strconv.ParseInt` reads: at most one sign, ASCII digits; None if it fails.

    Example: `_int64("9223372036854775808")` returns `None`.
    """
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not (digits.isascii() and digits.isdecimal()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS:
        return None
    number = -int(digits) if sign == "-" else int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None
