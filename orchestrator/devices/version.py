"""Semantic versions 2.0.0, which attributes of devices can have."""

import re
from functools import lru_cache
from typing import Final

VersionKey = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]
"""The sort key of a version: numbers, then a release above its pre-releases. Build metadata does not count."""

_MAX_LENGTH: Final = 256
_NUMBER: Final = r"(0|[1-9][0-9]{0,19})"
_PART: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_TEXT: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PART}(?:\.{_PART})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_ELEMENTS: Final = 3


class NotAVersion(ValueError):
    """The text is not a semantic version."""


@lru_cache(maxsize=4096)
def version_key(text: str) -> VersionKey:
    """Return the sort key of the version. Raises NotAVersion."""
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise NotAVersion(f"{text[:_MAX_LENGTH]!r} is not a semantic version")
    major, minor, patch = (int(number) for number in match.groups()[:_ELEMENTS])
    pre_release = match[_ELEMENTS + 1]
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in (pre_release or "").split(".")
        if part
    )
    return major, minor, patch, int(pre_release is None), parts


def normalized(text: str) -> str:
    """Return the version without a leading `v` and leading zeros, and with all three numbers. Raises NotAVersion.

    Example: `normalized("v1.07")` returns `'1.7.0'`.
    """
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < _ELEMENTS:
        if any(mark in parts[-1] for mark in "+-"):
            raise NotAVersion(f"{text[:_MAX_LENGTH]!r} is too short for a pre-release or build")
        parts += ["0"] * (_ELEMENTS - len(parts))
    return ".".join(parts)


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1].isdigit() else f"0{stripped}"
