"""Takes back from a configuration what was merged into it."""

from typing import Any


def take_back(present: dict[str, Any], asked: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What stays of `present`, into which `asked` was merged where `before` was.

    A value that is still the one that was asked for becomes what it was before; one that somebody has changed since
    stays as it is.
    """
    left = dict(present)
    for key, value in asked.items():
        if isinstance(value, dict) and isinstance(left.get(key), dict):
            then = before.get(key)
            left[key] = take_back(left[key], value, then if isinstance(then, dict) else {})
            if not left[key] and key not in before:
                del left[key]
        elif key in left and left[key] == value:
            left[key] = before.get(key)
            if key not in before:
                del left[key]
    return left


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """By the name that tasks call them."""
        return {"take_back": take_back}
