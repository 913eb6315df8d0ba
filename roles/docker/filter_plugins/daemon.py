"""A filter that removes merged settings from a configuration."""

from typing import Any


def take_back(present: dict[str, Any], merged: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return `present` without the settings in `merged`, which had the values in `before` earlier.

    A setting that still has its merged value gets its earlier value, or is removed if it had none. A setting that was
    changed since the merge stays.
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
        """Return the filters by name."""
        return {"take_back": take_back}
