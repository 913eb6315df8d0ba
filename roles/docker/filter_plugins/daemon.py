"""Takes back from a configuration what was merged into it."""

from typing import Any


def take_back(present: dict[str, Any], merged: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What stays of `present`, in which `merged` stands where `before` did.

    A value that is still the one that was asked for becomes what it was before; one that somebody has changed since
    stays as it is.
    """
    result = dict(present)
    for key, value in merged.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            then = before.get(key)
            result[key] = take_back(result[key], value, then if isinstance(then, dict) else {})
            if not result[key] and key not in before:
                del result[key]
        elif key in result and result[key] == value:
            result[key] = before.get(key)
            if key not in before:
                del result[key]
    return result


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """By the name that tasks call them."""
        return {"take_back": take_back}
