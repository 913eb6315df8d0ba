"""Checks of requests about volumes and snapshots without the cluster, and lists of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orchestrator.cluster.quantity import format_bytes
from orchestrator.errors import InvalidField
from orchestrator.submit.name_rules import is_object_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.submit.datasets import Snapshot, Volume

MAX_NAMES: Final = 20


def listed(views: Sequence[Volume] | Sequence[Snapshot]) -> str:
    """Return the names for a message: at most MAX_NAMES of them, then the number of the others."""
    names = [view.name for view in views[:MAX_NAMES]]
    more = len(views) - len(names)
    return ", ".join([*names, *([f"and {more} more"] if more else [])]) or "none"


def check_name(kind: str, name: str) -> None:
    """Raise InvalidField for a name that no object can have."""
    if not is_object_name(name):
        raise InvalidField(
            f"the {kind} name {{name!r}} is not possible: use at most 253 lower case letters, digits, '-' "
            f"and '.'. The first and the last must be a letter or digit",
            name=name,
        )


def check_class_name(name: str) -> None:
    """Raise InvalidField for a name that no storage class can have."""
    if not is_object_name(name):
        raise InvalidField("{storage_class} {name!r} is not possible: give the name of a class", name=name)


def check_within_project(source: str) -> None:
    """Raise InvalidField for a source of another project: only members of that project may copy its data."""
    if "/" in source:
        raise InvalidField(
            "{source!r} is not possible: clones and snapshots stay within a project; name a volume of it, or have "
            "somebody of the other project copy the data",
            source=source,
        )
    check_name("volume", source)


def check_size(size_bytes: int, least_bytes: int, what: str) -> None:
    """Raise InvalidField if a volume would be smaller than its content."""
    if size_bytes < least_bytes:
        raise InvalidField(
            "{size_bytes} {size} is not possible: {what} needs at least {least}",
            size=format_bytes(size_bytes),
            what=what,
            least=format_bytes(least_bytes),
        )
