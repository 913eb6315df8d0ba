"""Helpers for dictionaries that are updated by changes."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def put(mapping: dict[K, V], key: K, value: V | None) -> None:
    """Set the key to the value, or remove the key if the value is None."""
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def discard(groups: dict[K, dict[str, V]], group: K, member: str) -> None:
    """Remove the member from its group. If the group is then empty, remove it."""
    members = groups.get(group)
    if members is not None:
        members.pop(member, None)
        if not members:
            del groups[group]
