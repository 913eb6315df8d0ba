"""Compares two reports, without volatile values."""

import json
from collections.abc import Iterator
from typing import Any, Final

from validation.report import record

_ABSENT: Final = object()


def differences(one: record.Report, other: record.Report) -> list[str]:
    """Return a line for each entry that differs: its path, and both values.

    The day of the run is compared only if there are waivers.
    """
    left, right = (json.loads(record.encode(report)) for report in (one, other))
    if not one.scope.waivers and not other.scope.waivers:
        left["scope"]["today"] = right["scope"]["today"] = ""
    return list(_differences("", left, right))


def _differences(path: str, one: Any, other: Any) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, list) and isinstance(other, list):
        one, other = _by_name(one), _by_name(other)
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            if key != "volatile":
                yield from _differences(
                    f"{path}.{key}" if path else key, one.get(key, _ABSENT), other.get(key, _ABSENT)
                )
        return
    yield f"{path}: {_short(one)} and {_short(other)}"


def _by_name(entries: list[Any]) -> Any:
    """Return the entries by id or name or, if they have neither, by position.

    Return them unchanged if they are not objects.
    """
    for key in ("id", "name"):
        if entries and all(isinstance(entry, dict) and key in entry for entry in entries):
            return {f"[{entry[key]}]": entry for entry in entries}
    return dict(enumerate(entries)) if all(isinstance(entry, dict) for entry in entries) else entries


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    words = json.dumps(value, ensure_ascii=False)
    return words if len(words) <= 100 else words[:99] + "\N{HORIZONTAL ELLIPSIS}"
